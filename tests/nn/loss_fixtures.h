// What the tests of losses share.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {

using Doubles = std::vector<double>;

inline Tensor f64(const Doubles& numbers, const Shape& shape) {
  return Tensor::from_vector(numbers, shape);
}
inline Variable constant(const Doubles& numbers, const Shape& shape) {
  return Variable(f64(numbers, shape));
}

// Irregular values in (low, high).
inline Tensor irregular(const Shape& shape, double low, double high, double seed = 0.1) {
  Doubles numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double x = seed + 0.7548776662466927 * static_cast<double>(i + 1);
    numbers[i] = low + (high - low) * (x - std::floor(x));
  }
  return f64(numbers, shape);
}
inline Variable leaf(const Shape& shape, double low = -2, double high = 2, double seed = 0.1) {
  return Variable(irregular(shape, low, high, seed), true);
}

inline void check_near(const Doubles& actual, const Doubles& expected, double tolerance = 1e-14) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    INFO("element " << i);
    if (!std::isfinite(expected[i])) {
      CHECK((actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))));
    } else {
      CHECK(std::abs(actual[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])));
    }
  }
}

inline Tensor gradient_of(const Variable& loss, const Variable& x) {
  const Variable total = sum(loss);
  return grad({&total, 1}, {&x, 1})[0].tensor();
}

}  // namespace tessera::testing
