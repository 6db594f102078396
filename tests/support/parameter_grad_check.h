// grad_check over a model's parameters, which its function cannot take as inputs.
#pragma once

#include <functional>

#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/variable.h"
#include "tessera/nn/module.h"

namespace tessera::testing {

// Compares the derivative of loss() by every parameter of `model`, frozen ones left out, with
// central differences. f64 throughout; `loss` is one number and a function of the parameters alone.
// The parameters' values and gradients are as before.
GradCheckResult parameter_grad_check(nn::Module& model, const std::function<Variable()>& loss,
                                     const GradCheckOptions& options = {});

}  // namespace tessera::testing
