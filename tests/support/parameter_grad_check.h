// grad_check for a model's parameters, which cannot be passed as inputs of its function.
#pragma once

#include <functional>

#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/variable.h"
#include "tessera/nn/module.h"

namespace tessera::testing {

// Compares the derivative of sum(weights * result()) for every trainable parameter of `model` with
// central differences; the weights are grad_check's. f64 throughout. `result` must depend on the
// parameters only. Values and gradients are restored. A model without parameters passes.
GradCheckResult parameter_grad_check(const nn::Module& model,
                                     const std::function<Variable()>& result,
                                     const GradCheckOptions& options = {});

}  // namespace tessera::testing
