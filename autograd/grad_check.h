#pragma once

/// Numerical check of derivatives, for tests and for user-defined operations.

#include <functional>
#include <string>
#include <vector>

#include "tessera/autograd/variable.h"

namespace tessera {

struct GradCheckOptions {
  double step = 1e-6;       ///< central differences x +- step, scaled by max(1, |x|)
  double tolerance = 1e-7;  ///< |analytic - numeric| <= tolerance * max(1, |numeric|, |analytic|)
};

struct GradCheckResult {
  bool passed = false;
  std::string message;  ///< the worst element: input, position, both values
  explicit operator bool() const { return passed; }
};

/// Compares the derivative of sum(weights * function(inputs)), weights fixed and irregular, with
/// central differences, for every element of every input. Inputs are f64 leaves that require
/// gradients, else InvalidArgument; so is the result f64. The function is called with copies of the
/// inputs, twice for each element: it must be a function of them alone. Gradients of leaves stay
/// untouched.
GradCheckResult grad_check(const std::function<Variable(const std::vector<Variable>&)>& function,
                           const std::vector<Variable>& inputs,
                           const GradCheckOptions& options = {});

/// The same for the derivative of the derivative: that of sum(v * d(sum(w * function))/d(inputs))
/// for inputs and w, v fixed.
GradCheckResult grad_grad_check(
    const std::function<Variable(const std::vector<Variable>&)>& function,
    const std::vector<Variable>& inputs, const GradCheckOptions& options = {});

}  // namespace tessera
