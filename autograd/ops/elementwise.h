#pragma once

/// The differentiable counterparts of tensor/ops/elementwise.h: same names, shapes, dtypes and
/// errors, on Variable. A number stands for a variable wherever VariableOrNumber is written. An
/// operation on a variable and a tensor takes the tensor as a constant; elsewhere a constant is
/// passed as Variable(tensor). Gradients are summed over broadcast dims and come in the operand's
/// dtype. All derivatives are differentiable again ("twice"). For comparisons see predicates.h.

#include <type_traits>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/random.h"

namespace tessera {

/// An argument that is a variable or a number; for parameters only, since it refers to the
/// variable.
class VariableOrNumber {
 public:
  VariableOrNumber(const Variable& variable)
      : variable_(&variable) {}  // NOLINT: implicit on purpose
  template <detail::VariableHolder T>
  VariableOrNumber(const T& holder)
      : variable_(&static_cast<const Variable&>(holder)) {}  // NOLINT: implicit on purpose
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

namespace detail {

/// What arithmetic with a variable does not take.
template <class T>
concept NoOperand =
    !std::is_convertible_v<const T&, VariableOrNumber> && !std::is_convertible_v<const T&, Tensor>;

}  // namespace detail

// ---- arithmetic ------------------------------------------------------------------------------

Variable add(const VariableOrNumber& a, const VariableOrNumber& b);
Variable sub(const VariableOrNumber& a, const VariableOrNumber& b);
Variable add(const VariableOrNumber& a, const VariableOrNumber& b, double alpha);
Variable sub(const VariableOrNumber& a, const VariableOrNumber& b, double alpha);
Variable mul(const VariableOrNumber& a, const VariableOrNumber& b);
Variable div(const VariableOrNumber& a, const VariableOrNumber& b);
/// A step: the gradient is zero everywhere.
Variable div(const VariableOrNumber& a, const VariableOrNumber& b, RoundingMode rounding_mode);
/// The gradient for b is -floor(a / b) dy; that of fmod -trunc(a / b) dy.
Variable remainder(const VariableOrNumber& a, const VariableOrNumber& b);
Variable fmod(const VariableOrNumber& a, const VariableOrNumber& b);
/// The gradient for a is 0 where b is 0; that for b is 0 where a is 0 and b is not negative.
Variable pow(const VariableOrNumber& a, const VariableOrNumber& b);
/// Equal elements share the gradient.
Variable maximum(const VariableOrNumber& a, const VariableOrNumber& b);
Variable minimum(const VariableOrNumber& a, const VariableOrNumber& b);
/// The gradient goes to the operand that was chosen; equal elements share it.
Variable fmax(const VariableOrNumber& a, const VariableOrNumber& b);
Variable fmin(const VariableOrNumber& a, const VariableOrNumber& b);
/// The gradient passes to x where low <= x <= high, else to the bound that was chosen; a variable
/// that equals x shares it.
Variable clamp(const Variable& x, double low, double high);
Variable clamp(const Variable& x, const VariableOrNumber& low, const VariableOrNumber& high);
Variable clamp_min(const Variable& x, const VariableOrNumber& low);
Variable clamp_max(const Variable& x, const VariableOrNumber& high);
/// These three in one kernel, as the tensor operations.
Variable lerp(const Variable& a, const VariableOrNumber& b, const VariableOrNumber& weight);
Variable addcmul(const Variable& a, const Variable& b, const Variable& c, double factor = 1);
Variable addcdiv(const Variable& a, const Variable& b, const Variable& c, double factor = 1);
Variable where(const Tensor& condition, const VariableOrNumber& a, const VariableOrNumber& b);

Variable atan2(const VariableOrNumber& a, const VariableOrNumber& b);
Variable hypot(const VariableOrNumber& a, const VariableOrNumber& b);
/// The gradient for a is 0 where a is 0; that for b is 0.
Variable copysign(const VariableOrNumber& a, const VariableOrNumber& b);
Variable logaddexp(const VariableOrNumber& a, const VariableOrNumber& b);
Variable logaddexp2(const VariableOrNumber& a, const VariableOrNumber& b);
/// The gradient for a is 0 where a is 0 and b is not positive.
Variable xlogy(const VariableOrNumber& a, const VariableOrNumber& b);
Variable polygamma(int n, const Variable& x);

/// With a constant tensor.
#define TESSERA_WITH_CONSTANT(name)                                                         \
  inline Variable name(const Variable& a, const Tensor& b) { return name(a, Variable(b)); } \
  inline Variable name(const Tensor& a, const Variable& b) { return name(Variable(a), b); }
TESSERA_WITH_CONSTANT(add)
TESSERA_WITH_CONSTANT(sub)
TESSERA_WITH_CONSTANT(mul)
TESSERA_WITH_CONSTANT(div)
TESSERA_WITH_CONSTANT(remainder)
TESSERA_WITH_CONSTANT(fmod)
TESSERA_WITH_CONSTANT(pow)
TESSERA_WITH_CONSTANT(maximum)
TESSERA_WITH_CONSTANT(minimum)
TESSERA_WITH_CONSTANT(fmax)
TESSERA_WITH_CONSTANT(fmin)
TESSERA_WITH_CONSTANT(atan2)
TESSERA_WITH_CONSTANT(hypot)
TESSERA_WITH_CONSTANT(copysign)
TESSERA_WITH_CONSTANT(logaddexp)
TESSERA_WITH_CONSTANT(logaddexp2)
TESSERA_WITH_CONSTANT(xlogy)
#undef TESSERA_WITH_CONSTANT
inline Variable add(const Variable& a, const Tensor& b, double alpha) {
  return add(a, Variable(b), alpha);
}
inline Variable add(const Tensor& a, const Variable& b, double alpha) {
  return add(Variable(a), b, alpha);
}
inline Variable sub(const Variable& a, const Tensor& b, double alpha) {
  return sub(a, Variable(b), alpha);
}
inline Variable sub(const Tensor& a, const Variable& b, double alpha) {
  return sub(Variable(a), b, alpha);
}
inline Variable clamp(const Variable& x, const Tensor& low, const Tensor& high) {
  return clamp(x, Variable(low), Variable(high));
}
inline Variable clamp_min(const Variable& x, const Tensor& low) {
  return clamp_min(x, Variable(low));
}
inline Variable clamp_max(const Variable& x, const Tensor& high) {
  return clamp_max(x, Variable(high));
}
inline Variable where(const Tensor& condition, const Variable& a, const Tensor& b) {
  return where(condition, a, Variable(b));
}
inline Variable where(const Tensor& condition, const Tensor& a, const Variable& b) {
  return where(condition, Variable(a), b);
}

inline Variable operator+(const Variable& a, const VariableOrNumber& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const VariableOrNumber& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const VariableOrNumber& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const VariableOrNumber& b) { return div(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Variable operator+(T a, const Variable& b) { return add(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Variable operator-(T a, const Variable& b) { return sub(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Variable operator*(T a, const Variable& b) { return mul(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Variable operator/(T a, const Variable& b) { return div(a, b); }
inline Variable operator+(const Variable& a, const Tensor& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Tensor& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Tensor& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Tensor& b) { return div(a, b); }
inline Variable operator+(const Tensor& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Tensor& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Tensor& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Tensor& a, const Variable& b) { return div(a, b); }

/// With an operand of another type the compiler names that type here, in place of the list of all
/// operators of the program.
template <detail::NoOperand T>
Variable operator+(const Variable& a, const T& b) = delete;
template <detail::NoOperand T>
Variable operator-(const Variable& a, const T& b) = delete;
template <detail::NoOperand T>
Variable operator*(const Variable& a, const T& b) = delete;
template <detail::NoOperand T>
Variable operator/(const Variable& a, const T& b) = delete;
template <detail::NoOperand T>
Variable operator+(const T& a, const Variable& b) = delete;
template <detail::NoOperand T>
Variable operator-(const T& a, const Variable& b) = delete;
template <detail::NoOperand T>
Variable operator*(const T& a, const Variable& b) = delete;
template <detail::NoOperand T>
Variable operator/(const T& a, const Variable& b) = delete;

/// Constants of x's shape, dtype and device.
inline Tensor zeros_like(const Variable& x) { return zeros_like(x.tensor()); }
inline Tensor ones_like(const Variable& x) { return ones_like(x.tensor()); }
inline Tensor full_like(const Variable& x, double value) { return full_like(x.tensor(), value); }
inline Tensor rand_like(const Variable& x) { return rand_like(x.tensor()); }
inline Tensor randn_like(const Variable& x) { return randn_like(x.tensor()); }

// ---- functions of one variable ---------------------------------------------------------------

Variable neg(const Variable& x);
inline Variable operator-(const Variable& x) { return neg(x); }
Variable abs(const Variable& x);  ///< slope 0 at 0
Variable square(const Variable& x);
Variable reciprocal(const Variable& x);
Variable exp(const Variable& x);
Variable exp2(const Variable& x);
Variable expm1(const Variable& x);
Variable log(const Variable& x);
Variable log2(const Variable& x);
Variable log10(const Variable& x);
Variable log1p(const Variable& x);
Variable sqrt(const Variable& x);
Variable rsqrt(const Variable& x);
Variable sin(const Variable& x);
Variable cos(const Variable& x);
Variable tan(const Variable& x);
Variable asin(const Variable& x);
Variable acos(const Variable& x);
Variable atan(const Variable& x);
Variable sinh(const Variable& x);
Variable cosh(const Variable& x);
Variable tanh(const Variable& x);
Variable asinh(const Variable& x);
Variable acosh(const Variable& x);
Variable atanh(const Variable& x);
Variable sinc(const Variable& x);
Variable deg2rad(const Variable& x);
Variable rad2deg(const Variable& x);
Variable erf(const Variable& x);
Variable erfc(const Variable& x);
Variable erfinv(const Variable& x);
Variable lgamma(const Variable& x);
Variable digamma(const Variable& x);
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
/// The gradient passes as it is.
Variable frac(const Variable& x);
/// No gradient passes where an element is replaced.
Variable nan_to_num(const Variable& x, const NanToNumOptions& options = {});

/// To another floating dtype; the gradient is cast back. Throws InvalidArgument for other dtypes.
Variable cast(const Variable& x, DType dtype);
/// A copy of its own, contiguous.
Variable clone(const Variable& x);

}  // namespace tessera
