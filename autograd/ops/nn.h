#pragma once

/// Differentiable operations of neural networks: the counterparts of tensor/ops/nn.h, ops/norm.h
/// and of dropout in ops/random.h, where shapes, formulas and errors stand. Derivatives are fused
/// kernels; "twice": with create_graph they are made of differentiable operations instead.

#include <string_view>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tensor/ops/random.h"

namespace tessera {

/// With a dtype: of x in it, also under autocast. Twice.
Variable softmax(const Variable& x, int dim = -1);
Variable log_softmax(const Variable& x, int dim = -1);
Variable softmax(const Variable& x, int dim, DType dtype);
Variable log_softmax(const Variable& x, int dim, DType dtype);

/// Targets and class weights get no gradient. Twice.
///
/// The gradient is written over the logits where backward is their last user: when it frees the
/// saved tensors (not with create_graph; with retain_graph only those that it recomputed), and no
/// handle, view or other node holds them. So leave them to the loss, `cross_entropy(model(tokens),
/// targets)`, or let the variable's scope end before backward(). The peak of backward is then lower
/// by rows * classes * dtype_size(logits) bytes, a whole tensor of logits; for 8192 tokens of a
/// vocabulary of 50257 in f32, by 1.5 GiB. Logits to which another handle exists keep their values,
/// and the gradient has the same bits either way.
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options);
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       LossReduction reduction = LossReduction::kMean);

/// weight and bias may be undefined. All twice.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const LayerNormOptions& options = {});
Variable rms_norm(const Variable& x, const Variable& weight, const RmsNormOptions& options = {});
Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const GroupNormOptions& options = {});
/// x + residual and its norm, in one kernel; x and residual have one shape. What follows, gradients
/// too, has the bits of add() and then the norm. Where their dtypes differ, and under autocast, it
/// is add() and then the norm.
struct AddNorm {
  Variable y;    ///< the norm of `sum`
  Variable sum;  ///< x + residual, of the dtype that add() gives it

  /// For hooks of layers that return it (nn/visit.h).
  template <class F>
  void visit_tensors(F&& f) {
    f(y, sum);
  }
};
AddNorm add_layer_norm(const Variable& x, const Variable& residual, const Variable& weight,
                       const Variable& bias, const LayerNormOptions& options = {});  // twice
AddNorm add_rms_norm(const Variable& x, const Variable& residual, const Variable& weight,
                     const RmsNormOptions& options = {});  // twice
/// Training, the running statistics in options are updated; gradients flow through the statistics
/// of x, but not to the running ones. Twice.
Variable batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const BatchNormOptions& options = {});
/// Gradients flow through the statistics of x, but not to the running ones, which are updated where they are given.
/// Twice.
Variable instance_norm(const Variable& x, const Variable& weight, const Variable& bias,
                       const InstanceNormOptions& options = {});
Variable local_response_norm(const Variable& x, const LocalResponseNormOptions& options);  // twice

/// With a key of its own and the part of the global tensor that x is. The derivative drops the same
/// elements; on the CPU it keeps a bit per element. Twice.
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

/// dropout of whole channels: x [samples, channels, ...] of at least 3 dims. Throws InvalidArgument for fewer. Twice.
Variable dropout2d(const Variable& x, const DropoutOptions& options);
/// Dropout that keeps mean 0 and variance 1, for selu: a dropped element becomes -1.7581, and all are then scaled and
/// shifted. With p = 1 all are 0. Twice. (Klambauer et al., "Self-normalizing neural networks", 2017.)
Variable alpha_dropout(const Variable& x, const DropoutOptions& options);

/// Twice. The table gets no gradient.
Variable rotary(const Variable& x, const RotaryTable& table, const RotaryOptions& options = {});

}  // namespace tessera
