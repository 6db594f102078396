#pragma once

/// Helpers of the autograd tests.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/variable.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/throws.h"

namespace tessera::testing {

// Small helpers of the autograd tests.

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

// Derivatives against differences, as assertions.

using Inputs = std::vector<Variable>;
using TestedFunction = std::function<Variable(const Inputs&)>;

inline void check_once(const TestedFunction& function, const Inputs& inputs) {
  const GradCheckResult result = grad_check(function, inputs);
  INFO(result.message);
  CHECK(result.passed);
}

inline void check_twice(const TestedFunction& function, const Inputs& inputs) {
  check_once(function, inputs);
  const GradCheckResult result = grad_grad_check(function, inputs);
  INFO("second derivative: " << result.message);
  CHECK(result.passed);
}

// A function of tensors and of variables: the same values, and derivatives that are twice right.
template <class F>
void check_both(const F& function, const Inputs& inputs) {
  const Variable y = function(inputs);
  std::vector<Tensor> tensors;
  for (const Variable& input : inputs)
    tensors.push_back(input.defined() ? input.tensor() : Tensor());
  const Tensor plain = function(tensors);
  CHECK(y.shape() == plain.shape());
  CHECK(values(y) == values(plain));
  CHECK(y.requires_grad());
  check_twice(function, inputs);
}

// Operations that compute nothing and note in a log when gradients pass by.

using Log = std::vector<std::string>;

// x itself; notes in the log when its gradient passes by.
inline Variable passing(const std::string& name, const Variable& x, Log& log) {
  return record_twice("passing", x.tensor(), {x},
                      [name, &log](const Variable& dy, const BackwardContext&) {
                        log.push_back(name);
                        return Gradients{dy};
                      });
}

// All of `inputs`, through one node.
inline std::vector<Variable> passing_all(const std::string& name,
                                         const std::vector<Variable>& inputs, Log& log) {
  std::vector<Tensor> tensors;
  for (const Variable& input : inputs) tensors.push_back(input.tensor());
  return record_differentiable("passing_all", tensors, inputs,
                               [name, &log](const Gradients& dy, const BackwardContext&) {
                                 log.push_back(name);
                                 return dy;
                               });
}

inline void log_accumulation(Variable leaf, const std::string& name, Log& log) {
  leaf.register_post_accumulate_hook([name, &log](const Variable&) { log.push_back(name); });
}

}  // namespace tessera::testing
