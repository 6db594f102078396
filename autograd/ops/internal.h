#pragma once

/// Helpers of derivatives. For autograd's own .cc files.

#include <initializer_list>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/variable.h"
#include "tessera/tensor/activation.h"
#include "tessera/tensor/ops/create.h"

namespace tessera::detail {

// Differentiable helpers that derivatives are made of. For autograd's own .cc files.

/// `x` kept only where someone will ask for it.
inline SavedVariable save_if(bool wanted, const Variable& x, const char* operation) {
  return wanted ? SavedVariable(x, operation) : SavedVariable();
}

/// activation(x), whose value `y` is known already. The derivative of kRelu does not read x.
Variable activated(ActivationKind activation, const Variable& x, const Tensor& y);

/// Whether a gradient may be written over what `saved` keeps: this node releases it next, and has the only handle.
///
/// Threads: a count of one cannot grow behind our back, since handles are copied from handles, and the one there is belongs to
/// this node, which only the thread that recorded it uses. Streams: when the last handle of a block goes, its stream hands it
/// out again at once, so code that read the tensor on another stream made this one wait before it dropped its handle.
/// Overwriting it here is what the next owner of the block would do; hence only on the block's own stream, and not where
/// replays of a CUDA graph come back to it.
///
/// What is saved must lie as the gradient would that the derivative makes itself, with rows of a pitch of `kinds`: what reads
/// the gradient then chooses the same kernels.
bool gives_memory(const SavedVariable& saved, const BackwardContext& context,
                  std::initializer_list<RowPitch> kinds);

// What derivatives of elementwise operations keep of their operands. For autograd's own .cc files.

/// What the gradient of an operand must look like.
class Like {
 public:
  explicit Like(const Variable& operand) : shape_(operand.shape()), dtype_(operand.dtype()) {}
  /// Whether fit() sums the gradient over what was broadcast.
  bool sums(const Variable& gradient) const { return gradient.shape() != shape_; }
  /// Summed where the operand was broadcast, in its dtype. Undefined, which is 0, stays so.
  Variable fit(const Variable& gradient) const {
    if (!gradient.defined()) return {};
    const Variable summed = sum_to_shape(gradient, shape_);
    return is_floating(dtype_) ? cast(summed, dtype_) : summed;
  }

 private:
  Shape shape_;
  DType dtype_;
};

inline bool requires_grad(const VariableOrNumber& x) {
  return x.is_variable() && x.variable().requires_grad();
}

/// An operand kept for backward, where `wanted`: a variable, or the number.
class Kept {
 public:
  Kept(bool wanted, const VariableOrNumber& x, const char* operation) {
    if (!x.is_variable()) number_ = x.plain().number();
    if (x.is_variable() && wanted) variable_ = SavedVariable(x.variable(), operation);
    is_number_ = !x.is_variable();
  }
  VariableOrNumber get() const {
    return is_number_ ? VariableOrNumber(number_) : VariableOrNumber(variable_.unpack());
  }
  TensorOrNumber plain() const { return get().plain(); }

 private:
  SavedVariable variable_;
  double number_ = 0;
  bool is_number_ = false;
};

}  // namespace tessera::detail
