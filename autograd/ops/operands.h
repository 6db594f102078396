#pragma once

/// What derivatives of elementwise operations keep of their operands. For autograd's own .cc files.

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/ops.h"

namespace tessera::detail {

/// What the gradient of an operand must look like.
class Like {
 public:
  explicit Like(const Variable& operand) : shape_(operand.shape()), dtype_(operand.dtype()) {}
  /// Summed where the operand was broadcast, in its dtype.
  Variable fit(const Variable& gradient) const {
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
