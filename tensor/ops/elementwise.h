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
#include <optional>
#include <type_traits>

#include "tessera/tensor/ops/promotion.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

// ---- arithmetic ------------------------------------------------------------------------------

/// For two bools: logical or.
Tensor add(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor sub(const TensorOrNumber& a, const TensorOrNumber& b);  ///< not for two bools
/// a + alpha b and a - alpha b. Not for two bools; alpha is whole where the result is an integer.
Tensor add(const TensorOrNumber& a, const TensorOrNumber& b, double alpha);
Tensor sub(const TensorOrNumber& a, const TensorOrNumber& b, double alpha);
Tensor mul(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor div(const TensorOrNumber& a, const TensorOrNumber& b);  ///< f32 if both are integers

enum class RoundingMode : std::uint8_t {
  kTrunc,  ///< towards 0, as C++ divides integers
  kFloor,  ///< down: floor_divide
};
/// The quotient rounded to a whole number; integers stay integers. Integer division by 0 gives 0.
Tensor div(const TensorOrNumber& a, const TensorOrNumber& b, RoundingMode rounding_mode);
/// `floor(a / b)`. Integer division by 0 gives 0.
Tensor floor_divide(const TensorOrNumber& a, const TensorOrNumber& b);
/// `a - b floor(a / b)`, with the sign of b. For integers, b = 0 gives a.
Tensor remainder(const TensorOrNumber& a, const TensorOrNumber& b);
/// `a - b trunc(a / b)`, with the sign of a. For integers, b = 0 gives a.
Tensor fmod(const TensorOrNumber& a, const TensorOrNumber& b);
/// Integers to a negative number are an InvalidArgument; to negative elements of a tensor, the
/// result is truncated to an integer.
Tensor pow(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor maximum(const TensorOrNumber& a, const TensorOrNumber& b);  ///< NaN if either is
Tensor minimum(const TensorOrNumber& a, const TensorOrNumber& b);  ///< NaN if either is
Tensor fmax(const TensorOrNumber& a, const TensorOrNumber& b);     ///< NaN only if both are
Tensor fmin(const TensorOrNumber& a, const TensorOrNumber& b);     ///< NaN only if both are
/// min(max(x, low), high); NaN stays.
Tensor clamp(const Tensor& x, const TensorOrNumber& low, const TensorOrNumber& high);
/// With one bound: max(x, low) and min(x, high); NaN if either is.
Tensor clamp_min(const Tensor& x, const TensorOrNumber& low);
Tensor clamp_max(const Tensor& x, const TensorOrNumber& high);
/// a + weight (b - a); floating only. Weights 0 and 1 give a and b exactly.
Tensor lerp(const Tensor& a, const TensorOrNumber& b, const TensorOrNumber& weight);
/// a + factor b c.
Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, double factor = 1);
/// a + factor b / c; floating only.
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, double factor = 1);
/// a where `condition` is not 0, else b.
Tensor where(const Tensor& condition, const TensorOrNumber& a, const TensorOrNumber& b);
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) Tensor
    where(const Tensor& condition, A a, B b) {
  return where(condition, TensorOrNumber(a), TensorOrNumber(b));
}

// ---- functions of two tensors: f32 if both are integers -----------------------------------------

/// The angle of the point (b, a), in (-pi, pi].
Tensor atan2(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor hypot(const TensorOrNumber& a, const TensorOrNumber& b);     ///< sqrt(a^2 + b^2)
Tensor copysign(const TensorOrNumber& a, const TensorOrNumber& b);  ///< |a| with the sign of b
/// log(exp(a) + exp(b)) and log2(2^a + 2^b), without overflow.
Tensor logaddexp(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor logaddexp2(const TensorOrNumber& a, const TensorOrNumber& b);
/// a log(b), and 0 where a is 0; NaN where b is.
Tensor xlogy(const TensorOrNumber& a, const TensorOrNumber& b);
/// The derivative of digamma of order n, which is at least 0. Infinite at 0 and at negative
/// integers for n >= 1.
Tensor polygamma(int n, const Tensor& x);

// ---- bits of integers and bool; of bool, false and true are 0 and 1 -----------------------------

/// InvalidArgument for floating dtypes, and for shifts of bool.
Tensor bitwise_and(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor bitwise_or(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor bitwise_xor(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor bitwise_not(const Tensor& x);  ///< of bool: logical_not
inline Tensor operator&(const Tensor& a, const TensorOrNumber& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const TensorOrNumber& b) { return bitwise_or(a, b); }
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }
/// Bits that leave the dtype are lost. A shift by a negative number, or by all bits, gives 0.
Tensor bitwise_left_shift(const TensorOrNumber& a, const TensorOrNumber& b);
/// Keeps the sign. A shift by a negative number, or by all bits, gives 0, or -1 for negative a.
Tensor bitwise_right_shift(const TensorOrNumber& a, const TensorOrNumber& b);
void bitwise_and_(const Tensor& x, const TensorOrNumber& y);
void bitwise_or_(const Tensor& x, const TensorOrNumber& y);
void bitwise_xor_(const Tensor& x, const TensorOrNumber& y);
void bitwise_not_(const Tensor& x);

// ---- operators, and arithmetic in place ---------------------------------------------------------

inline Tensor operator+(const Tensor& a, const TensorOrNumber& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const TensorOrNumber& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const TensorOrNumber& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const TensorOrNumber& b) { return div(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Tensor operator+(T a, const Tensor& b) { return add(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Tensor operator-(T a, const Tensor& b) { return sub(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Tensor operator*(T a, const Tensor& b) { return mul(a, b); }
template <class T>
requires std::is_arithmetic_v<T> Tensor operator/(T a, const Tensor& b) { return div(a, b); }

/// No `==`: eq(a, b) compares elements, and equal(a, b) whole tensors.
void operator==(const Tensor& a, const TensorOrNumber& b) = delete;

void add_(const Tensor& x, const TensorOrNumber& y);
void sub_(const Tensor& x, const TensorOrNumber& y);
void add_(const Tensor& x, const TensorOrNumber& y, double alpha);  ///< x += alpha y
void sub_(const Tensor& x, const TensorOrNumber& y, double alpha);  ///< x -= alpha y
void mul_(const Tensor& x, const TensorOrNumber& y);
void div_(const Tensor& x, const TensorOrNumber& y);
inline const Tensor& operator+=(const Tensor& x, const TensorOrNumber& y) { return add_(x, y), x; }
inline const Tensor& operator-=(const Tensor& x, const TensorOrNumber& y) { return sub_(x, y), x; }
inline const Tensor& operator*=(const Tensor& x, const TensorOrNumber& y) { return mul_(x, y), x; }
inline const Tensor& operator/=(const Tensor& x, const TensorOrNumber& y) { return div_(x, y), x; }
void pow_(const Tensor& x, const TensorOrNumber& y);
void clamp_(const Tensor& x, const TensorOrNumber& low, const TensorOrNumber& high);
void clamp_min_(const Tensor& x, const TensorOrNumber& low);
void clamp_max_(const Tensor& x, const TensorOrNumber& high);
void lerp_(const Tensor& x, const TensorOrNumber& y, const TensorOrNumber& weight);
void addcmul_(const Tensor& x, const Tensor& b, const Tensor& c, double factor = 1);
void addcdiv_(const Tensor& x, const Tensor& b, const Tensor& c, double factor = 1);

// ---- functions of one tensor -----------------------------------------------------------------

/// Integers stay integers.
Tensor neg(const Tensor& x);  ///< not for bool
inline Tensor operator-(const Tensor& x) { return neg(x); }
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);    ///< -1, 0 or 1; NaN stays
Tensor square(const Tensor& x);  ///< bool gives i64, as pow(x, 2)
Tensor relu(const Tensor& x);    ///< max(x, 0); NaN stays
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  ///< ties to even
Tensor trunc(const Tensor& x);
Tensor frac(const Tensor& x);  ///< x - trunc(x)

/// What replaces NaN and infinities; without a value, inf becomes the largest finite number of the
/// dtype, and -inf the smallest.
struct NanToNumOptions {
  double nan = 0;
  std::optional<double> posinf = {};
  std::optional<double> neginf = {};
};
/// A copy, for integers and bool.
Tensor nan_to_num(const Tensor& x, const NanToNumOptions& options = {});
void nan_to_num_(const Tensor& x, const NanToNumOptions& options = {});

/// Integers and bool give f32.
Tensor reciprocal(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);   ///< 2^x
Tensor expm1(const Tensor& x);  ///< exp(x) - 1, accurate near 0
Tensor log(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor log1p(const Tensor& x);  ///< log(1 + x), accurate near 0
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  ///< 1 / sqrt(x)
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);  ///< asin and acos: NaN beyond [-1, 1]
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);    ///< NaN below 1
Tensor atanh(const Tensor& x);    ///< NaN beyond [-1, 1]
Tensor sinc(const Tensor& x);     ///< sin(pi x) / (pi x), 1 at 0
Tensor deg2rad(const Tensor& x);  ///< x pi / 180
Tensor rad2deg(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);     ///< 1 - erf(x), accurate where it is small
Tensor erfinv(const Tensor& x);   ///< NaN beyond [-1, 1]
Tensor lgamma(const Tensor& x);   ///< log |gamma(x)|; inf at 0 and at negative integers
Tensor digamma(const Tensor& x);  ///< the derivative of lgamma; NaN at negative integers
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
void frac_(const Tensor& x);
void exp_(const Tensor& x);
void exp2_(const Tensor& x);
void log_(const Tensor& x);
void log2_(const Tensor& x);
void log10_(const Tensor& x);
void sqrt_(const Tensor& x);
void rsqrt_(const Tensor& x);
void reciprocal_(const Tensor& x);
void tanh_(const Tensor& x);
void erfinv_(const Tensor& x);
void sigmoid_(const Tensor& x);

// ---- comparisons and predicates: bool ---------------------------------------------------------

/// Computed in the common dtype of both; comparisons with NaN are false, except ne.
Tensor eq(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor ne(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor lt(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor le(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor gt(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor ge(const TensorOrNumber& a, const TensorOrNumber& b);
inline Tensor operator<(const Tensor& a, const TensorOrNumber& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const TensorOrNumber& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const TensorOrNumber& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const TensorOrNumber& b) { return ge(a, b); }
/// Elements other than 0 are true, NaN too.
Tensor logical_and(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor logical_or(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor logical_xor(const TensorOrNumber& a, const TensorOrNumber& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
Tensor signbit(const Tensor& x);  ///< true for negative numbers, and for -0

struct IsCloseOptions {
  double rtol = 1e-5;
  double atol = 1e-8;
  bool equal_nan = false;  ///< NaN is close to NaN
};
/// Whether |a - b| <= atol + rtol |b|, or a and b are equal. The difference of integers is
/// exact; 16 bits are compared in f32.
Tensor isclose(const Tensor& a, const Tensor& b, const IsCloseOptions& options = {});
/// Whether all elements are close. Synchronizes; true on the null device.
bool allclose(const Tensor& a, const Tensor& b, const IsCloseOptions& options = {});
/// Whether both have one shape and equal elements; NaN equals nothing. Synchronizes; on the null
/// device only shapes are compared.
bool equal(const Tensor& a, const Tensor& b);

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
/// The same, written over x.
void gelu_backward_(const Tensor& x, const Tensor& dy);
void gelu_tanh_backward_(const Tensor& x, const Tensor& dy);
void silu_backward_(const Tensor& x, const Tensor& dy);

}  // namespace tessera
