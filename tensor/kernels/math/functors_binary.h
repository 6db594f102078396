#pragma once

/// The computation of binary kernels for one pair of elements; see functors.h. In derivatives the
/// first operand is the gradient of the result, the second the input x or the result y of the
/// forward function.

#include "tessera/tensor/kernels/math/functors.h"

namespace tessera {

enum class BinaryOp : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kTruncDivide,
  kFloorDivide,
  kFmod,
  kRemainder,
  kPow,
  kMaximum,
  kMinimum,
  kFmax,
  kFmin,
  kAtan2,
  kHypot,
  kCopysign,
  kLogAddExp,
  kLogAddExp2,
  kXlogy,
  kPolygamma,  ///< a is the order
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  kBitwiseLeftShift,
  kBitwiseRightShift,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kReluBackward,      ///< takes x (or y, which is positive where x is)
  kGeluBackward,      ///< takes x
  kGeluTanhBackward,  ///< takes x
  kSiluBackward,      ///< takes x
  kSoftplusBackward,  ///< takes x
  kTanhBackward,      ///< takes y
  kSigmoidBackward,   ///< takes y
  kCount,
};

namespace functors {

struct Add {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <std::floating_point T>
  TESSERA_HD T operator()(T a, T b) const {
    return a / b;
  }
};
/// Rounded towards 0. Integers divided by 0 give 0: a kernel cannot throw for one element.
struct TruncDivide {
  TESSERA_HD float operator()(float a, float b) const { return ::truncf(a / b); }
  TESSERA_HD double operator()(double a, double b) const { return ::trunc(a / b); }
  TESSERA_HD std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    if (b == 0) return 0;
    return b == -1 ? -a : a / b;
  }
};
/// Rounded down. Integers divided by 0 give 0.
struct FloorDivide {
  /// Uses the remainder, which is exact: a / b may round up to an integer.
  template <std::floating_point T>
  TESSERA_HD T operator()(T a, T b) const {
    if (b == T(0)) return a / b;
    const T r = ::fmod(a, b);
    const T below = (a - r) / b - (r != T(0) && (r < T(0)) != (b < T(0)) ? T(1) : T(0));
    return below == T(0) ? ::copysign(T(0), a) * ::copysign(T(1), b) : ::rint(below);
  }
  TESSERA_HD std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    if (b == 0) return 0;
    if (b == -1) return -a;
    const std::int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
  }
};
/// `a - b trunc(a / b)`: has the sign of a.
struct Fmod {
  template <std::floating_point T>
  TESSERA_HD T operator()(T a, T b) const {
    return ::fmod(a, b);
  }
  TESSERA_HD std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a - b * TruncDivide{}(a, b);
  }
};
/// `a - b floor(a / b)`: has the sign of b.
struct Remainder {
  template <std::floating_point T>
  TESSERA_HD T operator()(T a, T b) const {
    const T r = ::fmod(a, b);
    return r != T(0) && (r < T(0)) != (b < T(0)) ? r + b : r;
  }
  TESSERA_HD std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a - b * FloorDivide{}(a, b);
  }
};
struct Pow {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return scalar::pow(a, b);
  }
};
/// The larger; NaN if either is.
struct Maximum {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
/// The larger; the other if one is NaN.
struct Fmax {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a >= b || b != b ? a : b;
  }
};
struct Fmin {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a <= b || b != b ? a : b;
  }
};
/// Functors of the functions of two numbers in scalar_*.h.
#define TESSERA_SCALAR_FUNCTOR(Functor, function) \
  struct Functor {                                \
    template <std::floating_point T>              \
    TESSERA_HD T operator()(T a, T b) const {     \
      return scalar::function(a, b);              \
    }                                             \
  };
TESSERA_SCALAR_FUNCTOR(Atan2, atan2)
TESSERA_SCALAR_FUNCTOR(Hypot, hypot)
TESSERA_SCALAR_FUNCTOR(LogAddExp, logaddexp)
TESSERA_SCALAR_FUNCTOR(LogAddExp2, logaddexp2)
TESSERA_SCALAR_FUNCTOR(Xlogy, xlogy)
#undef TESSERA_SCALAR_FUNCTOR
/// For f64 only: in a kernel of f32 it would need more registers than a GPU's thread has.
struct Polygamma {
  template <std::same_as<double> T>
  TESSERA_HD T operator()(T n, T x) const {
    return scalar::polygamma(n, x);
  }
};
/// The magnitude of a with the sign of b.
struct Copysign {
  TESSERA_HD float operator()(float a, float b) const { return ::copysignf(a, b); }
  TESSERA_HD double operator()(double a, double b) const { return ::copysign(a, b); }
};
struct BitwiseAnd {
  template <std::integral T>
  TESSERA_HD T operator()(T a, T b) const {
    return a & b;
  }
};
struct BitwiseOr {
  template <std::integral T>
  TESSERA_HD T operator()(T a, T b) const {
    return a | b;
  }
};
struct BitwiseXor {
  template <std::integral T>
  TESSERA_HD T operator()(T a, T b) const {
    return a ^ b;
  }
};
/// 0 if b is negative, or as many bits as there are.
struct BitwiseLeftShift {
  template <std::integral T>
  TESSERA_HD T operator()(T a, T b) const {
    if (b < 0 || b > 63) return 0;
    return static_cast<T>(static_cast<std::uint64_t>(a) << b);
  }
};
/// The sign, 0 or -1, if b is negative, or as many bits as there are.
struct BitwiseRightShift {
  template <std::integral T>
  TESSERA_HD T operator()(T a, T b) const {
    return a >> (b < 0 || b > 63 ? 63 : b);
  }
};
struct Eq {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a == b ? T(1) : T(0);
  }
};
struct Ne {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a != b ? T(1) : T(0);
  }
};
struct Lt {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a < b ? T(1) : T(0);
  }
};
struct Le {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a <= b ? T(1) : T(0);
  }
};
struct Gt {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a > b ? T(1) : T(0);
  }
};
struct Ge {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a >= b ? T(1) : T(0);
  }
};
struct LogicalAnd {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return (a != T(0)) & (b != T(0)) ? T(1) : T(0);
  }
};
struct LogicalOr {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return (a != T(0)) | (b != T(0)) ? T(1) : T(0);
  }
};
struct LogicalXor {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return (a != T(0)) != (b != T(0)) ? T(1) : T(0);
  }
};
struct ReluBackward {
  template <class T>
  TESSERA_HD T operator()(T dy, T x) const {
    return x <= T(0) ? T(0) : dy;  // written so that dy passes if x is NaN
  }
};
struct GeluBackward {
  template <scalar::Real T>
  TESSERA_HD T operator()(T dy, T x) const {
    const T bounded = at_least(at_most(x, T(40)), T(-40));
    const scalar::Normal<T> at = normal(bounded);
    return dy * fma(bounded, at.density, at.cdf);
  }
};
/// S computes the sigmoid, as in GeluTanhBy.
template <class S>
struct GeluTanhBackwardBy {
  template <scalar::Real T>
  TESSERA_HD T operator()(T dy, T x) const {
    const T bounded = at_least(at_most(x, T(40)), T(-40));
    const T s = S()(GeluTanh::argument(bounded));
    const T inner = T(1.5957691216057307117) * fma(T(3 * 0.044715) * bounded, bounded, T(1));
    return dy * fma(mul(bounded * inner, s), T(1) - s, s);
  }
};
using GeluTanhBackward = GeluTanhBackwardBy<Sigmoid>;
template <class S>
struct SiluBackwardBy {
  template <scalar::Real T>
  TESSERA_HD T operator()(T dy, T x) const {
    const T bounded = at_least(at_most(x, T(1000)), T(-1000));
    const T s = S()(bounded);
    return dy * fma(mul(bounded, s), T(1) - s, s);
  }
};
using SiluBackward = SiluBackwardBy<Sigmoid>;
struct SoftplusBackward {
  template <std::floating_point T>
  TESSERA_HD T operator()(T dy, T x) const {
    return dy * scalar::sigmoid(x);
  }
};
struct TanhBackward {
  template <std::floating_point T>
  TESSERA_HD T operator()(T dy, T y) const {
    return dy * scalar::fma(-y, y, T(1));
  }
};
struct SigmoidBackward {
  template <std::floating_point T>
  TESSERA_HD T operator()(T dy, T y) const {
    return dy * scalar::mul(y, T(1) - y);
  }
};

/// In the order of BinaryOp.
using Binary =
    std::tuple<Add, Sub, Mul, Div, TruncDivide, FloorDivide, Fmod, Remainder, Pow, Maximum, Minimum,
               Fmax, Fmin, Atan2, Hypot, Copysign, LogAddExp, LogAddExp2, Xlogy, Polygamma,
               BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseLeftShift, BitwiseRightShift, Eq, Ne, Lt,
               Le, Gt, Ge, LogicalAnd, LogicalOr, LogicalXor, ReluBackward, GeluBackward,
               GeluTanhBackward, SiluBackward, SoftplusBackward, TanhBackward, SigmoidBackward>;
static_assert(std::tuple_size_v<Binary> == static_cast<std::size_t>(BinaryOp::kCount));

}  // namespace functors
}  // namespace tessera
