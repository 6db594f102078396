#pragma once

/// What elementwise kernels compute for one element, written once for CPU and GPU.

#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera {

enum class UnaryOp : std::uint8_t { kNeg, kAbs, kExp, kLog, kSqrt, kSquare, kTanh, kRelu, kGelu };
enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kReluBackward, kGeluBackward, kEqual };

namespace functors {

struct Neg {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return -x;
  }
};
struct Abs {
  TESSERA_HD float operator()(float x) const { return ::fabsf(x); }
  TESSERA_HD double operator()(double x) const { return ::fabs(x); }
};
struct Exp {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return scalar::exp(x);
  }
};
struct Log {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return scalar::log(x);
  }
};
struct Sqrt {
  TESSERA_HD float operator()(float x) const { return ::sqrtf(x); }
  TESSERA_HD double operator()(double x) const { return ::sqrt(x); }
};
struct Square {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x * x;
  }
};
struct Tanh {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return scalar::tanh(x);
  }
};
struct Relu {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    return x <= T(0) ? T(0) : x;  // so written, NaN stays
  }
};
struct Gelu {
  template <class T>
  TESSERA_HD T operator()(T x) const {
    // Bounded below, so that -inf gives 0 instead of inf * 0; the distribution function is 0 there.
    const T bounded = x < T(-40) ? T(-40) : x;
    return bounded * scalar::normal(bounded).cdf;
  }
};

struct Add {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Sub {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return static_cast<T>(a - b);
  }
};
struct Mul {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
};
struct Div {
  template <class T>
  TESSERA_HD T operator()(T a, T b) const {
    return a / b;
  }
};
struct ReluBackward {
  template <class T>
  TESSERA_HD T operator()(T dy, T x) const {
    return x > T(0) ? dy : T(0);
  }
};
struct GeluBackward {
  template <class T>
  TESSERA_HD T operator()(T dy, T x) const {
    const T upper = x > T(40) ? T(40) : x;
    const T bounded = upper < T(-40) ? T(-40) : upper;
    const scalar::Normal<T> normal = scalar::normal(bounded);
    return dy * scalar::fma(bounded, normal.density, normal.cdf);
  }
};
struct Equal {
  template <class T>
  TESSERA_HD std::uint8_t operator()(T a, T b) const {
    return a == b ? 1 : 0;
  }
};

}  // namespace functors

/// Calls `body` with the functor of `op`.
template <class Body>
void with_functor(UnaryOp op, Body&& body) {
  switch (op) {
    case UnaryOp::kNeg:
      return body(functors::Neg{});
    case UnaryOp::kAbs:
      return body(functors::Abs{});
    case UnaryOp::kExp:
      return body(functors::Exp{});
    case UnaryOp::kLog:
      return body(functors::Log{});
    case UnaryOp::kSqrt:
      return body(functors::Sqrt{});
    case UnaryOp::kSquare:
      return body(functors::Square{});
    case UnaryOp::kTanh:
      return body(functors::Tanh{});
    case UnaryOp::kRelu:
      return body(functors::Relu{});
    case UnaryOp::kGelu:
      return body(functors::Gelu{});
  }
}

}  // namespace tessera
