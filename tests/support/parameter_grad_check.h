// grad_check over a model's parameters, which its function cannot take as inputs.
#pragma once

#include <functional>

#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/variable.h"
#include "tessera/nn/module.h"

namespace tessera::testing {

// Compares the derivative of sum(weights * result()) by every parameter of `model`, frozen ones
// left out, with central differences; the weights are grad_check's. f64 throughout; `result` is a
// function of the parameters alone. Their values and gradients are as before. A model without
// parameters passes.
GradCheckResult parameter_grad_check(const nn::Module& model,
                                     const std::function<Variable()>& result,
                                     const GradCheckOptions& options = {});

}  // namespace tessera::testing
