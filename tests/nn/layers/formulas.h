#pragma once

// Parameters and inputs made by formulas, so that another program can make the same.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::testing {

// factor * sin(0.7 i + k) for i = 0, 1, ...; row-major, f64.
inline Tensor waves(const Shape& shape, double k, double factor = 0.3) {
  std::vector<double> out(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = factor * std::sin(0.7 * static_cast<double>(i) + k);
  }
  return Tensor::from_vector(out, shape);
}

inline Variable wave_input(const Shape& shape, double k) {
  return Variable(waves(shape, k, 1), /*requires_grad=*/true);
}

// Materialises the model; its n-th parameter becomes waves(shape, n).
inline void fill_with_waves(nn::Module& model) {
  nn::initialize(model);
  double n = 0;
  for (const nn::Parameter& p : model.parameters()) {
    copy_(p.local().tensor(), waves(p.shape(), n++));
  }
}

// sum(y * cos(0.3 i)).
inline Variable weigh(const Variable& y) {
  std::vector<double> weights(static_cast<std::size_t>(y.numel()));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::cos(0.3 * static_cast<double>(i));
  }
  return sum(y * Variable(Tensor::from_vector(weights, y.shape())));
}

// weigh() of each parameter's gradient, in their order.
inline std::vector<double> weighed_gradients(const nn::Module& model) {
  std::vector<double> out;
  for (const nn::Parameter& p : model.parameters()) {
    out.push_back(weigh(Variable(p.grad())).item<double>());
  }
  return out;
}

inline void check_close(const std::vector<double>& got, const std::vector<double>& expected,
                        double tolerance = 1e-12) {
  REQUIRE(got.size() == expected.size());
  std::size_t apart = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])))
      continue;
    ++apart;
    UNSCOPED_INFO("element " << i << ": got " << got[i] << ", expected " << expected[i]);
  }
  CHECK(apart == 0);
}

}  // namespace tessera::testing
