#pragma once

/// Negative log likelihoods of Bernoulli, Gaussian and Poisson distributions, with PyTorch's definitions. As in loss.h:
/// values have a LossReduction, operands are floating and of equal shapes, else InvalidArgument; 16 bits are computed and
/// returned in f32. Classes have nll_loss and cross_entropy of loss.h.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/nn.h"

namespace tessera::nn {

struct BinaryCrossEntropyOptions {
  LossReduction reduction = LossReduction::kMean;
  Tensor weight = {};  ///< floating, expands to input's shape: factor of each value
};
/// -weight (t log(x) + (1 - t) log(1 - x)) of probabilities x and targets t, both in [0, 1]; logarithms are at least
/// -100, so that 0 and 1 cost 100 at most. The gradient of x divides by max(x (1 - x), 1e-12). x outside [0, 1] is not
/// checked; there the loss is NaN. For logits bce_with_logits_loss is more exact. Twice.
Variable binary_cross_entropy(const VariableOrTensor& input, const VariableOrTensor& target,
                              const BinaryCrossEntropyOptions& options = {});

struct GaussianNllLossOptions {
  LossReduction reduction = LossReduction::kMean;
  bool full = false;  ///< adds log(2 pi) / 2
  double eps = 1e-6;  ///< > 0: smallest variance
};
/// (log(v) + (input - target)^2 / v) / 2, v = max(var, eps), whose gradient is that of var also below eps. var has the
/// shape of input, or that with a last extent of 1, or without the last dim. A variance below 0 is not checked and counts
/// as eps. Twice.
Variable gaussian_nll_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                           const VariableOrTensor& var, const GaussianNllLossOptions& options = {});

struct PoissonNllLossOptions {
  LossReduction reduction = LossReduction::kMean;
  bool log_input = true;  ///< the input is the logarithm of the expectation
  bool full = false;      ///< adds Stirling's approximation of log(target!) for targets above 1
  double eps = 1e-8;      ///< with log_input = false: added in the logarithm
};
/// exp(input) - target input; with log_input = false input - target log(input + eps). Twice.
Variable poisson_nll_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                          const PoissonNllLossOptions& options = {});

}  // namespace tessera::nn
