#pragma once

/// The differentiable counterparts of tensor/ops/elementwise.h: same names, shapes, dtypes and
/// errors, on Variable. A number stands for a variable wherever VariableOrNumber is written; a
/// constant tensor is passed as Variable(tensor). Gradients are summed over broadcast dims and come
/// in the operand's dtype. All derivatives are differentiable again ("twice"); comparisons and
/// predicates have none: ask for them on x.tensor().

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {

/// An argument that is a variable or a number; for parameters only, since it refers to the
/// variable.
class VariableOrNumber {
 public:
  VariableOrNumber(const Variable& variable)
      : variable_(&variable) {}  // NOLINT: implicit on purpose
  template <class T>
  requires std::is_arithmetic_v<T> VariableOrNumber(T number)
      : number_(number) {}  // NOLINT: implicit on purpose

  bool is_variable() const { return variable_ != nullptr; }
  const Variable& variable() const { return *variable_; }
  /// As the tensor operations take it.
  TensorOrNumber plain() const {
    return variable_ != nullptr ? TensorOrNumber(variable_->tensor()) : number_;
  }

 private:
  const Variable* variable_ = nullptr;
  TensorOrNumber number_ = 0;
};

// ---- arithmetic ------------------------------------------------------------------------------

Variable add(const VariableOrNumber& a, const VariableOrNumber& b);
Variable sub(const VariableOrNumber& a, const VariableOrNumber& b);
Variable mul(const VariableOrNumber& a, const VariableOrNumber& b);
Variable div(const VariableOrNumber& a, const VariableOrNumber& b);
/// The gradient for b is -floor(a / b) dy.
Variable remainder(const VariableOrNumber& a, const VariableOrNumber& b);
/// The gradient for a is 0 where b is 0; that for b is 0 where a is 0 and b is not negative.
Variable pow(const VariableOrNumber& a, const VariableOrNumber& b);
/// Equal elements share the gradient.
Variable maximum(const VariableOrNumber& a, const VariableOrNumber& b);
Variable minimum(const VariableOrNumber& a, const VariableOrNumber& b);
/// Between two numbers; the gradient passes where low <= x <= high.
Variable clamp(const Variable& x, double low, double high);
/// These three in one kernel, as the tensor operations.
Variable lerp(const Variable& a, const VariableOrNumber& b, const VariableOrNumber& weight);
Variable addcmul(const Variable& a, const Variable& b, const Variable& c, double factor = 1);
Variable addcdiv(const Variable& a, const Variable& b, const Variable& c, double factor = 1);
Variable where(const Tensor& condition, const VariableOrNumber& a, const VariableOrNumber& b);

inline Variable operator+(const Variable& a, const VariableOrNumber& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const VariableOrNumber& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const VariableOrNumber& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const VariableOrNumber& b) { return div(a, b); }
inline Variable operator+(double a, const Variable& b) { return add(a, b); }
inline Variable operator-(double a, const Variable& b) { return sub(a, b); }
inline Variable operator*(double a, const Variable& b) { return mul(a, b); }
inline Variable operator/(double a, const Variable& b) { return div(a, b); }

// ---- functions of one variable ---------------------------------------------------------------

Variable neg(const Variable& x);
inline Variable operator-(const Variable& x) { return neg(x); }
Variable abs(const Variable& x);  ///< slope 0 at 0
Variable square(const Variable& x);
Variable reciprocal(const Variable& x);
Variable exp(const Variable& x);
Variable expm1(const Variable& x);
Variable log(const Variable& x);
Variable log1p(const Variable& x);
Variable sqrt(const Variable& x);
Variable rsqrt(const Variable& x);
Variable sin(const Variable& x);
Variable cos(const Variable& x);
Variable erf(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
Variable relu(const Variable& x);  ///< slope 0 at 0
Variable gelu(const Variable& x);
Variable gelu_tanh(const Variable& x);
Variable silu(const Variable& x);
Variable softplus(const Variable& x);
/// Steps: their gradient is zero everywhere.
Variable sign(const Variable& x);
Variable floor(const Variable& x);
Variable ceil(const Variable& x);
Variable round(const Variable& x);
Variable trunc(const Variable& x);

/// To another floating dtype; the gradient is cast back. Throws InvalidArgument for other dtypes.
Variable cast(const Variable& x, DType dtype);
/// A copy of its own, contiguous.
Variable clone(const Variable& x);

}  // namespace tessera
