#pragma once

/// The definitions of ops/quantile.h. For the .cc files that instantiate them.

#include <cmath>
#include <vector>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/quantile.h"
#include "tessera/tensor/ops/view.h"

namespace tessera::composed {

// Where each quantile lies in a sorted line: at below + weight * (above - below).
struct QuantilePlaces {
  std::vector<std::int64_t> below, above;
  std::vector<double> weight;
};

inline QuantilePlaces quantile_places(const std::vector<double>& q, std::int64_t n,
                                      QuantileInterpolation interpolation) {
  QuantilePlaces places;
  for (double fraction : q) {
    const double rank = fraction * static_cast<double>(n - 1);
    double below = std::floor(rank), above = std::ceil(rank), weight = rank - below;
    switch (interpolation) {
      case QuantileInterpolation::kLinear:
        break;
      case QuantileInterpolation::kLower:
        above = below;
        break;
      case QuantileInterpolation::kHigher:
        below = above;
        break;
      case QuantileInterpolation::kMidpoint:
        weight = 0.5;
        break;
      case QuantileInterpolation::kNearest:
        below = above = std::nearbyint(rank);
        break;
    }
    places.below.push_back(static_cast<std::int64_t>(below));
    places.above.push_back(static_cast<std::int64_t>(above));
    places.weight.push_back(below == above ? 0 : weight);
  }
  return places;
}

inline void check_quantile(const Tensor& x, const std::vector<double>& q) {
  for (double fraction : q) {
    TESSERA_CHECK(fraction >= 0 && fraction <= 1, "quantile", "q is {}; it must lie in [0, 1]",
                  fraction);
  }
  TESSERA_CHECK(x.numel() > 0, "quantile", "shape {} has no elements; there is nothing to choose",
                x.shape().str());
}

// The quantiles of lines along `dim`, in its place.
template <class V>
V line_quantiles(const V& line, int dim, const QuantilePlaces& places) {
  const Tensor& elements = plain(line);
  const auto count = static_cast<std::int64_t>(places.weight.size());
  const Device device = elements.device();
  const V sorted = sort(line, dim).values;
  const V below = index_select(sorted, dim, Tensor::from_vector(places.below, {count}, device));
  const V last = narrow(sorted, dim, elements.dim(dim) - 1, 1);
  const Tensor has_nan = isnan(plain(last));
  if (places.below == places.above) return where(has_nan, last, below);
  const V above = index_select(sorted, dim, Tensor::from_vector(places.above, {count}, device));
  Shape along = Shape::filled(elements.ndim(), 1);
  along[dim] = count;
  const V weight(
      cast(Tensor::from_vector(places.weight, {count}, device).view(along), elements.dtype()));
  const Tensor whole = eq(plain(weight), 0);
  return where(has_nan, last, where(whole, below, lerp(below, above, weight)));
}

// A dim 0 with one entry for each q, before the shape of one quantile.
template <class V>
V quantiles(const V& x, const std::vector<double>& q, const QuantileOptions& options) {
  const Tensor& elements = floating("quantile", x);
  const bool all = !options.dim.has_value();
  const int dim = all ? 0 : ops::along_dim("quantile", elements, *options.dim);
  check_quantile(elements, q);
  const bool flat = all || elements.ndim() == 0;
  const V line = flat ? reshape(x, {elements.numel()}) : x;
  const QuantilePlaces places = quantile_places(q, plain(line).dim(dim), options.interpolation);
  const V found = rounded_once(line, [&](const V& v) { return line_quantiles(v, dim, places); });
  const V in_front = movedim(found, dim, 0);
  if (!options.keep_dims) return in_front;
  if (!flat) return unsqueeze(in_front, dim + 1);
  Shape kept = Shape::filled(elements.ndim() + 1, 1);
  kept[0] = static_cast<std::int64_t>(q.size());
  return reshape(in_front, kept);
}

template <class V>
V quantile(const V& x, double q, const QuantileOptions& options) {
  return select(quantiles(x, {q}, options), 0, 0);
}

}  // namespace tessera::composed
