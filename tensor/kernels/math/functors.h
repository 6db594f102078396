#pragma once

/// The computation of unary kernels for one element, written once for CPU and GPU. A functor with a
/// std::int64_t overload is defined for integers and bool too; the others only for floating
/// numbers.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_elementary.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/math/scalar_special.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"
#include "tessera/tensor/unary_list.h"

namespace tessera {

/// kNeg, kAbs ...: an enumerator for each row of unary_list.h.
enum class UnaryOp : std::uint8_t {
#define TESSERA_ENUMERATOR(function, Functor, ...) k##Functor,
  TESSERA_UNARY_FUNCTIONS(TESSERA_ENUMERATOR) TESSERA_UNARY_BITWISE(TESSERA_ENUMERATOR)
      TESSERA_UNARY_PREDICATES(TESSERA_ENUMERATOR) kCount
#undef TESSERA_ENUMERATOR
};

namespace functors {

/// Functors of the functions in scalar_*.h.
#define TESSERA_SCALAR_FUNCTOR(Functor, function) \
  struct Functor {                                \
    template <std::floating_point T>              \
    TESSERA_HD T operator()(T x) const {          \
      return scalar::function(x);                 \
    }                                             \
  };
TESSERA_SCALAR_FUNCTOR(Exp2, exp2)
TESSERA_SCALAR_FUNCTOR(Expm1, expm1)
TESSERA_SCALAR_FUNCTOR(Log, log)
TESSERA_SCALAR_FUNCTOR(Log2, log2)
TESSERA_SCALAR_FUNCTOR(Log10, log10)
TESSERA_SCALAR_FUNCTOR(Log1p, log1p)
TESSERA_SCALAR_FUNCTOR(Sin, sin)
TESSERA_SCALAR_FUNCTOR(Cos, cos)
TESSERA_SCALAR_FUNCTOR(Tan, tan)
TESSERA_SCALAR_FUNCTOR(Asin, asin)
TESSERA_SCALAR_FUNCTOR(Acos, acos)
TESSERA_SCALAR_FUNCTOR(Atan, atan)
TESSERA_SCALAR_FUNCTOR(Sinh, sinh)
TESSERA_SCALAR_FUNCTOR(Cosh, cosh)
TESSERA_SCALAR_FUNCTOR(Asinh, asinh)
TESSERA_SCALAR_FUNCTOR(Acosh, acosh)
TESSERA_SCALAR_FUNCTOR(Atanh, atanh)
TESSERA_SCALAR_FUNCTOR(Sinc, sinc)
TESSERA_SCALAR_FUNCTOR(Erfc, erfc)
TESSERA_SCALAR_FUNCTOR(Erfinv, erfinv)
TESSERA_SCALAR_FUNCTOR(Lgamma, lgamma)
TESSERA_SCALAR_FUNCTOR(Digamma, digamma)
#undef TESSERA_SCALAR_FUNCTOR

// Computed of several vectors too (cpu/side_by_side.h), whose functions are found by their argument.
using scalar::at_least;
using scalar::at_most;
using scalar::fma;
using scalar::mul;
using scalar::normal;

#define TESSERA_REAL_FUNCTOR(Functor, function) \
  struct Functor {                              \
    template <scalar::Real T>                   \
    TESSERA_HD T operator()(T x) const {        \
      using scalar::function;                   \
      return function(x);                       \
    }                                           \
  };
TESSERA_REAL_FUNCTOR(Exp, exp)
TESSERA_REAL_FUNCTOR(Tanh, tanh)
TESSERA_REAL_FUNCTOR(Sigmoid, sigmoid)
TESSERA_REAL_FUNCTOR(Erf, erf)
#undef TESSERA_REAL_FUNCTOR

struct Neg {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return -x;
  }
};
struct Abs {
  TESSERA_HD float operator()(float x) const { return ::fabsf(x); }
  TESSERA_HD double operator()(double x) const { return ::fabs(x); }
  TESSERA_HD std::int64_t operator()(std::int64_t x) const { return x < 0 ? -x : x; }
};
struct Sign {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    const T sign = static_cast<T>(static_cast<T>(x > T(0)) - static_cast<T>(x < T(0)));
    return x == x ? sign : x;
  }
};
struct Square {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x * x;
  }
};
struct Reciprocal {
  template <std::floating_point T>
  TESSERA_HD T operator()(T x) const {
    return T(1) / x;
  }
};
struct Sqrt {
  TESSERA_HD float operator()(float x) const { return ::sqrtf(x); }
  TESSERA_HD double operator()(double x) const { return ::sqrt(x); }
};
struct Rsqrt {
  TESSERA_HD float operator()(float x) const { return 1.0f / ::sqrtf(x); }
  TESSERA_HD double operator()(double x) const { return 1.0 / ::sqrt(x); }
};
struct Relu {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x <= T(0) ? T(0) : x;  // written so that NaN stays
  }
};
struct Gelu {
  template <scalar::Real T>
  TESSERA_HD T operator()(T x) const {
    // Bounded below, so that -inf gives 0 instead of inf * 0; the distribution function is 0 there.
    const T bounded = at_least(x, T(-40));
    return bounded * normal(bounded).cdf;
  }
};
/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
/// S computes the sigmoid here and below.
template <class S>
struct GeluTanhBy {
  template <scalar::Real T>
  TESSERA_HD T operator()(T x) const {
    const T bounded = at_least(x, T(-40));
    return bounded * S()(argument(bounded));
  }
  template <class T>
  static TESSERA_HD T argument(T x) {
    return T(1.5957691216057307117) * (x * fma(T(0.044715) * x, x, T(1)));
  }
};
using GeluTanh = GeluTanhBy<Sigmoid>;
template <class S>
struct SiluBy {
  template <scalar::Real T>
  TESSERA_HD T operator()(T x) const {
    const T bounded = at_least(x, T(-1000));  // -inf gives 0
    return bounded * S()(bounded);
  }
};
using Silu = SiluBy<Sigmoid>;
struct Softplus {
  template <std::floating_point T>
  TESSERA_HD T operator()(T x) const {
    const T magnitude = x < T(0) ? -x : x;
    return scalar::log1p(scalar::exp(-magnitude)) + (x <= T(0) ? T(0) : x);
  }
};
struct Floor {
  TESSERA_HD float operator()(float x) const { return ::floorf(x); }
  TESSERA_HD double operator()(double x) const { return ::floor(x); }
  TESSERA_HD std::int64_t operator()(std::int64_t x) const { return x; }
};
struct Ceil {
  TESSERA_HD float operator()(float x) const { return ::ceilf(x); }
  TESSERA_HD double operator()(double x) const { return ::ceil(x); }
  TESSERA_HD std::int64_t operator()(std::int64_t x) const { return x; }
};
/// To the nearest integer, ties to even.
struct Round {
  TESSERA_HD float operator()(float x) const { return ::rintf(x); }
  TESSERA_HD double operator()(double x) const { return ::rint(x); }
  TESSERA_HD std::int64_t operator()(std::int64_t x) const { return x; }
};
struct Trunc {
  TESSERA_HD float operator()(float x) const { return ::truncf(x); }
  TESSERA_HD double operator()(double x) const { return ::trunc(x); }
  TESSERA_HD std::int64_t operator()(std::int64_t x) const { return x; }
};
/// The part behind the point, with the sign of x.
struct Frac {
  TESSERA_HD float operator()(float x) const { return x - ::truncf(x); }
  TESSERA_HD double operator()(double x) const { return x - ::trunc(x); }
  TESSERA_HD std::int64_t operator()(std::int64_t) const { return 0; }
};
struct BitwiseNot {
  template <std::integral T>
  TESSERA_HD T operator()(T x) const {
    return ~x;
  }
};
// Predicates return 1 or 0 in their compute type.
struct IsNan {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x == x ? T(0) : T(1);
  }
};
struct IsFinite {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x - x == T(0) ? T(1) : T(0);
  }
};
struct IsInf {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x == x && !(x - x == T(0)) ? T(1) : T(0);
  }
};
/// True for -0 too, and for NaN with a sign.
struct SignBit {
  TESSERA_HD float operator()(float x) const { return ::copysignf(1.0f, x) < 0.0f ? 1.0f : 0.0f; }
  TESSERA_HD double operator()(double x) const { return ::copysign(1.0, x) < 0.0 ? 1.0 : 0.0; }
  TESSERA_HD std::int64_t operator()(std::int64_t x) const { return x < 0 ? 1 : 0; }
};
struct LogicalNot {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x == T(0) ? T(1) : T(0);
  }
};

template <class, class... F>
using TupleWithoutFirst = std::tuple<F...>;

/// In the order of UnaryOp.
#define TESSERA_FUNCTOR(function, Functor, ...) , Functor
using Unary = TupleWithoutFirst<void TESSERA_UNARY_FUNCTIONS(TESSERA_FUNCTOR) TESSERA_UNARY_BITWISE(
    TESSERA_FUNCTOR) TESSERA_UNARY_PREDICATES(TESSERA_FUNCTOR)>;
#undef TESSERA_FUNCTOR
static_assert(std::tuple_size_v<Unary> == static_cast<std::size_t>(UnaryOp::kCount));

}  // namespace functors

/// True for functors that take kOperands operands of type C.
template <class F, class C, int kOperands>
inline constexpr bool kTakes = []<int... I>(std::integer_sequence<int, I...>) {
  return std::is_invocable_v<F, decltype(I, C{})...>;
}
(std::make_integer_sequence<int, kOperands>());

/// Calls `body` with the element of the tuple type Functors at index `op`.
template <class Functors, class Op, class Body>
void with_functor(Op op, Body&& body) {
  const auto wanted = static_cast<std::size_t>(op);
  const auto at = [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((wanted == I ? body(std::tuple_element_t<I, Functors>{}) : void()), ...);
  };
  at(std::make_index_sequence<std::tuple_size_v<Functors>>());
}

}  // namespace tessera
