#pragma once

/// The definitions of ops/image.h but for unfold and fold. For the .cc files that instantiate them.

#include <algorithm>
#include <cmath>
#include <string>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/image.h"

namespace tessera::composed {

// Channels, height and width of x [..., C, H, W]; the dims in front as one.
struct Planes {
  Planes(const char* where, const Tensor& x, std::int64_t factor) {
    ops::check_defined(where, "the tensor", x);
    TESSERA_CHECK(x.ndim() >= 3, where, "needs an input [..., channels, height, width], got {}",
                  x.shape().str());
    TESSERA_CHECK(factor >= 1, where, "the factor is {}; it must be at least 1", factor);
    leading = x.shape();
    for (int d = 0; d < 3; ++d) leading = leading.without(leading.ndim() - 1);
    images = leading.numel();
    channels = x.dim(-3), height = x.dim(-2), width = x.dim(-1);
  }
  Shape with(std::int64_t c, std::int64_t h, std::int64_t w) const {
    Shape out = leading;
    for (std::int64_t extent : {c, h, w}) out.push_back(extent);
    return out;
  }
  Shape leading;
  std::int64_t images = 0, channels = 0, height = 0, width = 0;
};

template <class V>
V in_order(const V& x, std::initializer_list<int> dims, const Shape& shape) {
  return reshape(contiguous(permuted(x, std::span(dims.begin(), dims.size()))), shape);
}

template <class V>
V pixel_shuffle(const V& x, std::int64_t r) {
  constexpr const char* kWhere = "pixel_shuffle";
  const Planes p(kWhere, plain(x), r);
  TESSERA_CHECK(p.channels % (r * r) == 0, kWhere,
                "an input of shape {} has {} channels; upscale_factor {} needs a multiple of {}",
                x.shape().str(), p.channels, r, r * r);
  const std::int64_t c = p.channels / (r * r);
  return in_order(reshape(x, {p.images, c, r, r, p.height, p.width}), {0, 1, 4, 2, 5, 3},
                  p.with(c, p.height * r, p.width * r));
}

template <class V>
V pixel_unshuffle(const V& x, std::int64_t r) {
  constexpr const char* kWhere = "pixel_unshuffle";
  const Planes p(kWhere, plain(x), r);
  TESSERA_CHECK(p.height % r == 0 && p.width % r == 0, kWhere,
                "height and width of an input of shape {} must be multiples of downscale_factor {}",
                x.shape().str(), r);
  const std::int64_t h = p.height / r, w = p.width / r;
  return in_order(reshape(x, {p.images, p.channels, h, r, w, r}), {0, 1, 3, 5, 2, 4},
                  p.with(p.channels * r * r, h, w));
}

template <class V>
V channel_shuffle(const V& x, std::int64_t groups) {
  constexpr const char* kWhere = "channel_shuffle";
  const Tensor& elements = plain(x);
  ops::check_defined(kWhere, "the tensor", elements);
  TESSERA_CHECK(elements.ndim() >= 3, kWhere, "needs an input [samples, channels, ...], got {}",
                elements.shape().str());
  const std::int64_t samples = elements.dim(0), channels = elements.dim(1);
  TESSERA_CHECK(groups >= 1 && channels % groups == 0, kWhere,
                "{} channels of shape {} do not split into {} groups", channels,
                elements.shape().str(), groups);
  std::int64_t spatial = 1;
  for (int d = 2; d < elements.ndim(); ++d) spatial *= elements.dim(d);
  return in_order(reshape(x, {samples, groups, channels / groups, spatial}), {0, 2, 1, 3},
                  elements.shape());
}

// One spatial dim of an interpolation.
struct Resize {
  std::int64_t in = 0;
  std::int64_t out = 0;
  double step = 0;  // from element to element of the result, in elements of x
};

inline void check_interpolate(const Tensor& x, const InterpolateOptions& o) {
  constexpr const char* kWhere = "interpolate";
  const bool line = o.mode == InterpolateMode::kLinear,
             plane = o.mode == InterpolateMode::kBilinear;
  TESSERA_CHECK((x.ndim() == 3 && !plane) || (x.ndim() == 4 && !line), kWhere,
                "needs an input [N, C, L], or [N, C, H, W]; linear mode only the former, bilinear "
                "mode only the latter; got {}",
                x.shape().str());
  const auto spatial = static_cast<std::size_t>(x.ndim() - 2);
  const auto fits = [&](std::size_t count) { return count == 1 || count == spatial; };
  TESSERA_CHECK(
      o.size.empty() ? fits(o.scale_factor.size()) : o.scale_factor.empty() && fits(o.size.size()),
      kWhere,
      "got {} numbers as size and {} as scale_factor; one of them has 1 or {}, the other "
      "none",
      o.size.size(), o.scale_factor.size(), spatial);
  TESSERA_CHECK(!o.align_corners || line || plane, kWhere,
                "align_corners is for the linear and bilinear modes");
  TESSERA_CHECK(!o.recompute_scale_factor || o.size.empty(), kWhere,
                "recompute_scale_factor needs a scale_factor, got a size");
}

inline Resize resize_of(const Tensor& x, int dim, const InterpolateOptions& o) {
  const auto at = [&](const auto& list) {
    return list[list.size() == 1 ? 0 : static_cast<std::size_t>(dim - 2)];
  };
  Resize r{.in = x.dim(dim)};
  const double factor = o.size.empty() ? at(o.scale_factor) : 0;
  r.out = o.size.empty() ? static_cast<std::int64_t>(std::floor(static_cast<double>(r.in) * factor))
                         : at(o.size);
  TESSERA_CHECK(r.in >= 1 && r.out >= 1, "interpolate",
                "dim {} of shape {} becomes {}; both extents must be at least 1", dim,
                x.shape().str(), r.out);
  const auto in = static_cast<double>(r.in), out = static_cast<double>(r.out);
  r.step = o.size.empty() && !o.recompute_scale_factor ? 1 / factor : in / out;
  if (o.align_corners) r.step = r.out > 1 ? (in - 1) / (out - 1) : 0;
  return r;
}

// The elements of x nearest to those of the result, as positions along the dim.
inline Tensor nearest_positions(const Tensor& counted, const Resize& r, bool exact) {
  const Tensor from = exact ? add(counted, 0.5) : counted;
  return cast(minimum(floor(mul(from, r.step)), r.in - 1), DType::kI64);
}

template <class V>
V resized_linear(const V& x, int dim, const Tensor& counted, const Resize& r, bool align_corners) {
  const Tensor place =
      align_corners ? mul(counted, r.step) : maximum(sub(mul(add(counted, 0.5), r.step), 0.5), 0);
  const Tensor before = minimum(floor(place), r.in - 1), after = minimum(add(before, 1), r.in - 1);
  const Shape along = Shape::filled(x.ndim(), 1).with(dim, r.out);
  const Tensor weight = clamp(sub(place, before), 0, 1).view(along);
  return lerp(index_select(x, dim, cast(before, DType::kI64)),
              index_select(x, dim, cast(after, DType::kI64)), V(weight));
}

template <class V>
V resized(const V& x, const InterpolateOptions& o) {
  const bool linear = o.mode == InterpolateMode::kLinear || o.mode == InterpolateMode::kBilinear;
  V out = x;
  for (int dim = 2; dim < x.ndim(); ++dim) {
    const Resize r = resize_of(plain(x), dim, o);
    if (r.in == r.out && (linear || r.step == 1)) continue;
    const TensorOptions kind{.dtype = compute_dtype(x.dtype()), .device = x.device()};
    const Tensor counted = arange(r.out, kind);
    out = linear ? resized_linear(out, dim, counted, r, o.align_corners)
                 : index_select(
                       out, dim,
                       nearest_positions(counted, r, o.mode == InterpolateMode::kNearestExact));
  }
  return out;
}

template <class V>
V interpolate(const V& x, const InterpolateOptions& o) {
  const Tensor& elements = floating("interpolate", x);
  check_interpolate(elements, o);
  if (o.mode == InterpolateMode::kArea) {
    const std::int64_t width = resize_of(elements, x.ndim() - 1, o).out;
    if (x.ndim() == 3) return adaptive_avg_pool1d(x, width);
    return adaptive_avg_pool2d(x, Size2d(resize_of(elements, 2, o).out, width));
  }
  const bool nearest =
      o.mode == InterpolateMode::kNearest || o.mode == InterpolateMode::kNearestExact;
  const V out =
      nearest ? resized(x, o) : rounded_once(x, [&](const V& v) { return resized(v, o); });
  return out.shape() == x.shape() && plain(out).storage() == elements.storage() ? clone(out) : out;
}

}  // namespace tessera::composed
