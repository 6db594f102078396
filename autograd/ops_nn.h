#pragma once

/// Differentiable operations of neural networks: the twins of tensor/ops_nn.h, ops_norm.h,
/// ops_dropout.h and ops_rotary.h, where shapes, formulas and errors stand. Derivatives are fused
/// kernels; "twice": with create_graph they are made of differentiable operations instead.

#include <string_view>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops_dropout.h"
#include "tessera/tensor/ops_nn.h"
#include "tessera/tensor/ops_norm.h"
#include "tessera/tensor/ops_rotary.h"

namespace tessera {

Variable softmax(const Variable& x, int dim = -1);      // twice
Variable log_softmax(const Variable& x, int dim = -1);  // twice

/// Targets and class weights get no gradient. Twice.
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options);
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       Reduction reduction = Reduction::kMean);

/// weight and bias may be undefined. All twice.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const LayerNormOptions& options = {});
Variable rms_norm(const Variable& x, const Variable& weight, const RmsNormOptions& options = {});
Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const GroupNormOptions& options = {});
/// x + residual and its norm, in one kernel; x and residual have one shape and dtype. What follows,
/// gradients too, has the bits of add() and then the norm.
struct AddNorm {
  Variable y;    ///< the norm of `sum`
  Variable sum;  ///< x + residual
};
AddNorm add_layer_norm(const Variable& x, const Variable& residual, const Variable& weight,
                       const Variable& bias, const LayerNormOptions& options = {});  // twice
AddNorm add_rms_norm(const Variable& x, const Variable& residual, const Variable& weight,
                     const RmsNormOptions& options = {});  // twice
/// Training, the running statistics in options are updated; gradients flow through the statistics
/// of x, but not to the running ones. Twice.
Variable batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const BatchNormOptions& options = {});

/// With a key of its own and the part of the global tensor that x is. The derivative drops the same
/// elements; no mask is kept. Twice.
Variable dropout(const Variable& x, double p, random::Key key, const random::Box& box);

struct DropoutOptions {
  double p = 0.5;
  bool training = true;         ///< false: x as it is
  std::string_view layer = {};  ///< the layer's name; required with training and p > 0
};
/// With the next key of the layer in the open random::StepScope, and x's first dim counting samples
/// from random::first_sample(): so samples drop the same elements whatever rank computes them.
/// Layers that split other dims over ranks pass their box to the form above. Twice.
Variable dropout(const Variable& x, const DropoutOptions& options);

/// Twice. The table gets no gradient.
Variable rotary(const Variable& x, const RotaryTable& table, const RotaryOptions& options = {});

}  // namespace tessera
