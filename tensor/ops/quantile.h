#pragma once

/// Quantiles. Medians and other elements that are chosen by their order are in ops/order.h.

#include <optional>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// The value between two neighbours a and b of a sorted line, for a fraction of their distance.
enum class QuantileInterpolation : std::uint8_t {
  kLinear,    ///< a + (b - a) * fraction
  kLower,     ///< a
  kHigher,    ///< b
  kMidpoint,  ///< (a + b) / 2
  kNearest,   ///< a below a half, b above; at a half the one with the even position
};

struct QuantileOptions {
  std::optional<int> dim = {};  ///< nullopt: over all elements
  bool keep_dims = false;
  QuantileInterpolation interpolation = QuantileInterpolation::kLinear;
};

/// The q-quantile along a dim, without it: the value at position q * (n - 1) of the n elements in
/// sorted order. NaN if there is a NaN. Floating only; 16-bit dtypes are computed in f32 and rounded
/// once. Where the position is whole the value is the element itself, also beside an infinity
/// (PyTorch computes inf - inf there, NaN).
///
/// A 0-d tensor counts as one element along dim 0. Throws InvalidArgument for q outside [0, 1], a
/// dim that does not exist, and no elements.
Tensor quantile(const Tensor& x, double q, const QuantileOptions& options = {});
/// Of each q: a dim 0 in front of the shape of one.
Tensor quantile(const Tensor& x, const std::vector<double>& q, const QuantileOptions& options = {});

}  // namespace tessera
