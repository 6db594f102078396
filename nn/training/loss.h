#pragma once

/// Losses, as functions; loss_modules.h has them as modules, margin_loss.h and likelihood_loss.h
/// more of them. Definitions are PyTorch's but where said.
///
///     Variable loss = nn::mse_loss(model(x), targets);
///     Variable loss = cross_entropy(logits, classes, {.label_smoothing = 0.1});
///
/// Every loss has one value per element or row, and a LossReduction (tensor/ops/nn.h): kNone leaves the
/// values, kSum adds them, kMean divides that by their number (with class weights by the sum of the
/// weights), which is NaN where there are none.
///
/// Results have the dtype that the operands promote to, but f32 where that has 16 bits: the loss
/// is computed in f32 and stays there. Operands are floating and of equal shapes,
/// else InvalidArgument: nothing broadcasts. Both get gradients, targets too, where they are
/// variables; a tensor is a constant. Weights, class indices and masks are plain tensors without. All twice.
///
/// Classes are the last dim. **The cross entropy of class indices** is an operation,
/// tessera::cross_entropy of autograd/ops/nn.h: softmax included and fused, with class weights,
/// ignore_index and label smoothing. That of class probabilities is here.

#include <cstdint>
#include <string>

#include "tessera/autograd/ops/nn.h"
#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh/mesh.h"

namespace tessera {

/// Cross entropy of logits [..., classes] with class probabilities [..., classes], found by its
/// arguments as that of indices is:
///     -sum_c weight[c] t[c] log(softmax(logits))[c],   t = (1 - s) target + s / classes,
/// s the label smoothing. kMean divides by the number of rows, whatever the weights. Throws
/// InvalidArgument for an ignore_index >= 0, which asks for indices, for probabilities of another
/// shape, and for a variable of integers: indices are a Tensor.
Variable cross_entropy(const Variable& logits, const Variable& probabilities,
                       const CrossEntropyOptions& options = {});

}  // namespace tessera

namespace tessera::nn {

/// (input - target)^2.
Variable mse_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                  LossReduction reduction = LossReduction::kMean);
/// |input - target|; slope 0 where they are equal.
Variable l1_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                 LossReduction reduction = LossReduction::kMean);

struct HuberLossOptions {
  LossReduction reduction = LossReduction::kMean;
  double delta = 1;  ///< > 0: where the parabola ends
};
/// d = input - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).
Variable huber_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                    const HuberLossOptions& options = {});

struct SmoothL1LossOptions {
  LossReduction reduction = LossReduction::kMean;
  double beta = 1;  ///< >= 0; 0: l1_loss
};
/// huber_loss with delta = beta, divided by beta.
Variable smooth_l1_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                        const SmoothL1LossOptions& options = {});

struct BceWithLogitsOptions {
  LossReduction reduction = LossReduction::kMean;
  Tensor weight = {};      ///< floating, expands to input's shape: factor of each value
  Tensor pos_weight = {};  ///< likewise: factor of the loss of positive targets
};
/// Binary cross entropy of logits x with targets t in [0, 1], sigmoid included:
///     weight (pos_weight t softplus(-x) + (1 - t) softplus(x)),
/// where softplus(-x) = -log(sigmoid(x)): nothing cancels, so it is exact to a few units of
/// rounding for every finite logit. kMean divides by the number of values, whatever the weights.
Variable bce_with_logits_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                              const BceWithLogitsOptions& options = {});

struct KlDivOptions {
  LossReduction reduction =
      LossReduction::kMean;  ///< of elements; for the divergence of a batch take kSum
                             ///< and divide by its rows
  bool log_target = false;   ///< targets are logarithms too
};
/// Kullback-Leibler divergence, per element: t (log(t) - x), where x, the input, are logarithms of
/// probabilities. A target of 0 (log_target: of -inf) costs 0 where x is finite, and the gradient
/// of its t log(t) counts as 0.
Variable kl_div(const VariableOrTensor& input, const VariableOrTensor& target,
                const KlDivOptions& options = {});

struct NllLossOptions {
  LossReduction reduction = LossReduction::kMean;
  std::int64_t ignore_index = -100;  ///< rows with this target count for nothing
  Tensor weight = {};                ///< [classes], floating, of each class; undefined: all 1
};
/// Negative log likelihood of log probabilities [..., classes] for class indices [...] (i64 or
/// i32): -weight[target] log_probabilities[target], 0 in rows that are ignored. kMean divides by
/// the sum of weight[target] over the rows that count. A target that is no class is an
/// InvalidArgument, at the next host wait on a queued stream.
Variable nll_loss(const VariableOrTensor& log_probabilities, const Tensor& targets,
                  const NllLossOptions& options = {});

using tessera::cross_entropy;

/// The loss to call backward on when ranks hold different numbers of samples: loss_sum * (ranks
/// along `axis`) / (global count), where loss_sum is the sum over this rank's samples and
/// local_count their number (also 0). After gradients are averaged over the axis, as sharding does,
/// the result is the gradient of the mean over all samples, for any split of the batch. One
/// all-reduce of the counts. Collective.
Variable global_mean(const Variable& loss_sum, std::int64_t local_count, const MeshArgument& mesh,
                     const std::string& axis = "data");

}  // namespace tessera::nn
