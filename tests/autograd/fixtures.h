// Small helpers of the autograd tests.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/throws.h"

namespace tessera::testing {

// Irregular values in (low, high), none of them alike.
inline Tensor irregular(const Shape& shape, double low = -1, double high = 1, double seed = 0.1) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = seed + 0.7548776662466927 * static_cast<double>(i + 1);
    values[i] = low + (high - low) * (x - std::floor(x));
  }
  return Tensor::from_vector(values, shape);
}

// An f64 leaf that requires a gradient.
inline Variable leaf(const Shape& shape, double low = -1, double high = 1, double seed = 0.1) {
  return Variable(irregular(shape, low, high, seed), true);
}
inline Variable scalar_leaf(double value) {
  return Variable(Tensor::scalar(value, {.dtype = DType::kF64}), true);
}
inline Variable constant(double value) {
  return Variable(Tensor::scalar(value, {.dtype = DType::kF64}));
}

inline std::vector<double> values(const Tensor& x) {
  return cast(x, DType::kF64).to_vector<double>();
}
inline std::vector<double> values(const Variable& x) { return values(x.tensor()); }

}  // namespace tessera::testing
