#pragma once

/// Elementwise operations.
///
/// Tensors broadcast as in NumPy. A TensorOrNumber may be a tensor or a number, but one operand
/// must be a tensor. The result's dtype follows promotion.h; 16-bit dtypes are computed in f32 and
/// rounded once. All dtypes are legal unless a comment says otherwise. Operands on two devices, and
/// shapes that do not broadcast, are an InvalidArgument that names both.
///
/// Functions whose names end in `_` write into their first argument, which keeps its shape and
/// dtype. A result of a higher kind (bool < integer < floating) or of another shape is an
/// InvalidArgument, and so is a first argument with overlapping elements (from expand).

#include <cstdint>

#include "tessera/tensor/ops/promotion.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

// ---- arithmetic ------------------------------------------------------------------------------

/// For two bools: logical or.
Tensor add(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor sub(const TensorOrNumber& a, const TensorOrNumber& b);  ///< not for two bools
Tensor mul(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor div(const TensorOrNumber& a, const TensorOrNumber& b);  ///< f32 if both are integers
/// `floor(a / b)`. Integer division by 0 gives 0.
Tensor floor_divide(const TensorOrNumber& a, const TensorOrNumber& b);
/// `a - b floor(a / b)`, with the sign of b. For integers, b = 0 gives a.
Tensor remainder(const TensorOrNumber& a, const TensorOrNumber& b);
/// Integers to a negative number are an InvalidArgument; to negative elements of a tensor, the
/// result is truncated to an integer.
Tensor pow(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor maximum(const TensorOrNumber& a, const TensorOrNumber& b);  ///< NaN if either is
Tensor minimum(const TensorOrNumber& a, const TensorOrNumber& b);  ///< NaN if either is
/// min(max(x, low), high); NaN stays. For a single bound use maximum or minimum.
Tensor clamp(const Tensor& x, const TensorOrNumber& low, const TensorOrNumber& high);
/// a + weight (b - a); floating only. Weights 0 and 1 give a and b exactly.
Tensor lerp(const Tensor& a, const TensorOrNumber& b, const TensorOrNumber& weight);
/// a + factor b c.
Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, double factor = 1);
/// a + factor b / c; floating only.
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, double factor = 1);
/// a where `condition` is not 0, else b.
Tensor where(const Tensor& condition, const TensorOrNumber& a, const TensorOrNumber& b);

inline Tensor operator+(const Tensor& a, const TensorOrNumber& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const TensorOrNumber& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const TensorOrNumber& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const TensorOrNumber& b) { return div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }

void add_(const Tensor& x, const TensorOrNumber& y);
void sub_(const Tensor& x, const TensorOrNumber& y);
void mul_(const Tensor& x, const TensorOrNumber& y);
void div_(const Tensor& x, const TensorOrNumber& y);
void pow_(const Tensor& x, const TensorOrNumber& y);
void clamp_(const Tensor& x, const TensorOrNumber& low, const TensorOrNumber& high);
void lerp_(const Tensor& x, const TensorOrNumber& y, const TensorOrNumber& weight);
void addcmul_(const Tensor& x, const Tensor& b, const Tensor& c, double factor = 1);
void addcdiv_(const Tensor& x, const Tensor& b, const Tensor& c, double factor = 1);

// ---- functions of one tensor -----------------------------------------------------------------

/// Integers stay integers.
Tensor neg(const Tensor& x);  ///< not for bool
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);    ///< -1, 0 or 1; NaN stays
Tensor square(const Tensor& x);  ///< bool gives i64, as pow(x, 2)
Tensor relu(const Tensor& x);    ///< max(x, 0); NaN stays
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  ///< ties to even
Tensor trunc(const Tensor& x);

/// Integers and bool give f32.
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);  ///< exp(x) - 1, accurate near 0
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);  ///< log(1 + x), accurate near 0
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  ///< 1 / sqrt(x)
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
/// x Phi(x), where Phi is the standard normal distribution function: exact GELU, through erf.
Tensor gelu(const Tensor& x);
/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the approximation used by GPT-2.
Tensor gelu_tanh(const Tensor& x);
Tensor silu(const Tensor& x);      ///< x sigmoid(x)
Tensor softplus(const Tensor& x);  ///< log(1 + exp(x)), without overflow

void neg_(const Tensor& x);
void abs_(const Tensor& x);
void square_(const Tensor& x);
void relu_(const Tensor& x);
void exp_(const Tensor& x);
void log_(const Tensor& x);
void sqrt_(const Tensor& x);
void rsqrt_(const Tensor& x);
void reciprocal_(const Tensor& x);
void tanh_(const Tensor& x);
void sigmoid_(const Tensor& x);

// ---- comparisons and predicates: bool ---------------------------------------------------------

/// Computed in the common dtype of both; comparisons with NaN are false, except ne.
Tensor eq(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor ne(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor lt(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor le(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor gt(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor ge(const TensorOrNumber& a, const TensorOrNumber& b);
/// Elements other than 0 are true, NaN too.
Tensor logical_and(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor logical_or(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor logical_xor(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

// ---- copies ----------------------------------------------------------------------------------

/// A contiguous copy; with a dtype, converted (floating to integer truncates towards zero and
/// clamps to the range, NaN gives 0; integer to integer keeps the low bits; to bool: x != 0).
Tensor clone(const Tensor& x);
Tensor cast(const Tensor& x, DType dtype);
/// Returns x itself if it is contiguous, else a copy.
Tensor contiguous(const Tensor& x);
/// The same elements in another shape: a view if the layout allows it, else a copy. One extent may
/// be -1.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Merges dims [first, last] into one.
Tensor flatten(const Tensor& x, int first = 0, int last = -1);
/// out = x, converted to out's dtype; both have one shape, any strides.
void copy_(const Tensor& out, const Tensor& x);

struct AxpbyOptions {
  double alpha = 1;  ///< factor of x
  double beta = 0;   ///< factor of out's old value; 0: out is not read
};
/// out = alpha * x + beta * out, computed in the wider of the two dtypes and stored in out's. One
/// shape, any strides. Gradient accumulation uses it to add with a cast, and FSDP to scale and cast
/// a reduced shard.
void axpby_(const Tensor& out, const Tensor& x, const AxpbyOptions& options);

// ---- derivatives, one pass each: floating only, one dtype and shape ----------------------------

/// dy times the derivative of the function: at x, or, for the functions with a parameter y, computed
/// from the function's result y. relu_backward also accepts y in place of x; where x is NaN it
/// returns dy.
Tensor relu_backward(const Tensor& dy, const Tensor& x);
Tensor gelu_backward(const Tensor& dy, const Tensor& x);
Tensor gelu_tanh_backward(const Tensor& dy, const Tensor& x);
Tensor silu_backward(const Tensor& dy, const Tensor& x);
Tensor softplus_backward(const Tensor& dy, const Tensor& x);
Tensor tanh_backward(const Tensor& dy, const Tensor& y);
Tensor sigmoid_backward(const Tensor& dy, const Tensor& y);

}  // namespace tessera
