#pragma once

/// The reductions, written once for CPU and GPU. Each defines, for elements of compute type C:
///
///     Acc, Total   the accumulators inside a block, and over blocks (8 bytes)
///     kNone        the result of no elements
///     term         the value of one element, given the result's shift
///     fold         combines two values
///     finish       converts the total to the result, a double or an int64
///
/// Unless a maths library is called, CPU and GPU give the same bits.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/reduce.h"

namespace tessera::folds {

template <class C>
using Wide = std::conditional_t<std::is_integral_v<C>, std::int64_t, double>;

/// The numbers that finish() may use.
struct ReduceNumbers {
  double count = 0;
  double parameter = 0;
};

struct Adds {
  static constexpr int kNone = 0;
  template <class A>
  TESSERA_HD static A fold(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    } else {
      return a + b;
    }
  }
};

template <class C>
struct SumFold : Adds {
  using Acc = C;
  using Total = Wide<C>;
  TESSERA_HD static Acc term(C x, double, const ReduceNumbers&) { return x; }
  TESSERA_HD static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};

template <class C>
struct MeanFold : SumFold<C> {
  TESSERA_HD static double finish(double total, double, const ReduceNumbers& n) {
    return total / n.count;
  }
};

template <class C>
struct SumAbsFold : SumFold<C> {
  TESSERA_HD static C term(C x, double, const ReduceNumbers&) { return std::abs(x); }
};

template <class C>
struct SquaresFold : Adds {
  using Acc = double;
  using Total = double;
  TESSERA_HD static Acc term(C x, double, const ReduceNumbers&) {
    return scalar::mul(static_cast<double>(x), static_cast<double>(x));
  }
  TESSERA_HD static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};

template <class C>
struct Norm2Fold : SquaresFold<C> {
  TESSERA_HD static double finish(double total, double, const ReduceNumbers&) {
    return std::sqrt(total);
  }
};

template <class C>
struct NormPFold : SquaresFold<C> {
  TESSERA_HD static double term(C x, double, const ReduceNumbers& n) {
    return std::pow(std::abs(static_cast<double>(x)), n.parameter);
  }
  TESSERA_HD static double finish(double total, double, const ReduceNumbers& n) {
    return std::pow(total, 1 / n.parameter);
  }
};

/// Deviations from the mean, which is the shift.
template <class C>
struct VarFold : SquaresFold<C> {
  TESSERA_HD static double term(C x, double shift, const ReduceNumbers&) {
    const double deviation = static_cast<double>(x) - shift;
    return scalar::mul(deviation, deviation);
  }
  TESSERA_HD static double finish(double total, double, const ReduceNumbers& n) {
    const double degrees = n.count - n.parameter;
    return total / (degrees > 0 ? degrees : 0);
  }
};

template <class C>
struct StddevFold : VarFold<C> {
  TESSERA_HD static double finish(double total, double shift, const ReduceNumbers& n) {
    return std::sqrt(VarFold<C>::finish(total, shift, n));
  }
};

/// The shift is the largest element. If that is infinite, 0 is used instead: differences of
/// infinities would be NaN.
template <class C>
struct LogSumExpFold : Adds {
  using Acc = C;
  using Total = double;
  TESSERA_HD static double finite(double shift) { return std::isfinite(shift) ? shift : 0; }
  TESSERA_HD static Acc term(C x, double shift, const ReduceNumbers&) {
    return scalar::exp(x - static_cast<C>(finite(shift)));
  }
  TESSERA_HD static double finish(double total, double shift, const ReduceNumbers&) {
    return scalar::log(total) + finite(shift);
  }
};

/// 1 for each element that counts; exact, because a block has few elements.
template <class C>
struct CountFold : SumFold<C> {
  TESSERA_HD static C term(C x, double, const ReduceNumbers&) { return x != C(0) ? C(1) : C(0); }
};

template <class C>
struct AnyFold : CountFold<C> {
  TESSERA_HD static Wide<C> finish(Wide<C> total, double, const ReduceNumbers&) {
    return total != 0;
  }
};

template <class C>
struct AllFold : SumFold<C> {
  TESSERA_HD static C term(C x, double, const ReduceNumbers&) { return x != C(0) ? C(0) : C(1); }
  TESSERA_HD static Wide<C> finish(Wide<C> total, double, const ReduceNumbers&) {
    return total == 0;
  }
};

template <class C>
struct ProdFold {
  using Acc = Wide<C>;
  using Total = Acc;
  static constexpr int kNone = 1;
  TESSERA_HD static Acc term(C x, double, const ReduceNumbers&) { return x; }
  template <class A>
  TESSERA_HD static A fold(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return scalar::mul(a, b);
    }
  }
  TESSERA_HD static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};

/// The largest, or the smallest; NaN if there is a NaN.
template <class C, bool largest>
struct ExtremeFold {
  using Acc = C;
  using Total = Wide<C>;
  using Limits = std::numeric_limits<C>;
  static constexpr C kHigh = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr C kLow = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  static constexpr C kNone = largest ? kLow : kHigh;
  TESSERA_HD static Acc term(C x, double, const ReduceNumbers&) { return x; }
  template <class A>
  TESSERA_HD static A fold(A a, A b) {
    const bool better = largest ? b > a : b < a;
    // | instead of ||: without branches the compiler vectorizes it.
    return (better | (b != b)) ? b : a;
  }
  TESSERA_HD static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};
template <class C>
using MaxFold = ExtremeFold<C, true>;
template <class C>
using MinFold = ExtremeFold<C, false>;

template <class C>
struct MaxAbsFold : MaxFold<C> {
  TESSERA_HD static C term(C x, double, const ReduceNumbers&) { return std::abs(x); }
};
template <class C>
struct MinAbsFold : MinFold<C> {
  TESSERA_HD static C term(C x, double, const ReduceNumbers&) { return std::abs(x); }
};

/// The operation with the same term() and fold() as op; it differs only in finish().
constexpr ReduceOp folding_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMean:
      return ReduceOp::kSum;
    case ReduceOp::kNorm2:
      return ReduceOp::kSumOfSquares;
    case ReduceOp::kAny:
      return ReduceOp::kCountNonzero;
    case ReduceOp::kStddev:
      return ReduceOp::kVar;
    default:
      return op;
  }
}

/// The operation that combines two accumulators: kSum, kMax, kMin or kProd. It has the same kNone
/// and fold().
constexpr ReduceOp combining_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
    case ReduceOp::kMaxAbs:
      return ReduceOp::kMax;
    case ReduceOp::kMin:
    case ReduceOp::kMinAbs:
      return ReduceOp::kMin;
    case ReduceOp::kProd:
      return op;
    default:
      return ReduceOp::kSum;
  }
}

/// Calls `body.template operator()<F>()` for a result of combining_op().
template <class C, class Body>
TESSERA_HD void with_combining(ReduceOp op, Body&& body) {
  if (op == ReduceOp::kMax) return body.template operator()<MaxFold<C>>();
  if (op == ReduceOp::kMin) return body.template operator()<MinFold<C>>();
  if (op == ReduceOp::kProd) return body.template operator()<ProdFold<C>>();
  body.template operator()<SumFold<C>>();
}

/// Calls `body.template operator()<F>()` with the reduction of a result of folding_op(). Integers
/// support only some of them, which the operation has checked.
template <class C, class Body>
TESSERA_HD void with_folding(ReduceOp op, Body&& body) {
  constexpr bool kFloating = std::is_floating_point_v<C>;
  switch (op) {
    case ReduceOp::kSum:
      return body.template operator()<SumFold<C>>();
    case ReduceOp::kMax:
      return body.template operator()<MaxFold<C>>();
    case ReduceOp::kMin:
      return body.template operator()<MinFold<C>>();
    case ReduceOp::kProd:
      return body.template operator()<ProdFold<C>>();
    case ReduceOp::kCountNonzero:
      return body.template operator()<CountFold<C>>();
    case ReduceOp::kAll:
      return body.template operator()<AllFold<C>>();
    case ReduceOp::kSumAbs:
      if constexpr (kFloating) return body.template operator()<SumAbsFold<C>>();
      break;
    case ReduceOp::kSumOfSquares:
      if constexpr (kFloating) return body.template operator()<SquaresFold<C>>();
      break;
    case ReduceOp::kNormP:
      if constexpr (kFloating) return body.template operator()<NormPFold<C>>();
      break;
    case ReduceOp::kMaxAbs:
      if constexpr (kFloating) return body.template operator()<MaxAbsFold<C>>();
      break;
    case ReduceOp::kMinAbs:
      if constexpr (kFloating) return body.template operator()<MinAbsFold<C>>();
      break;
    case ReduceOp::kLogSumExp:
      if constexpr (kFloating) return body.template operator()<LogSumExpFold<C>>();
      break;
    case ReduceOp::kVar:
      if constexpr (kFloating) return body.template operator()<VarFold<C>>();
      break;
    default:
      break;
  }
}

/// The same for every operation.
template <class C, class Body>
TESSERA_HD void with_fold(ReduceOp op, Body&& body) {
  constexpr bool kFloating = std::is_floating_point_v<C>;
  switch (op) {
    case ReduceOp::kAny:
      return body.template operator()<AnyFold<C>>();
    case ReduceOp::kMean:
      if constexpr (kFloating) return body.template operator()<MeanFold<C>>();
      break;
    case ReduceOp::kNorm2:
      if constexpr (kFloating) return body.template operator()<Norm2Fold<C>>();
      break;
    case ReduceOp::kStddev:
      if constexpr (kFloating) return body.template operator()<StddevFold<C>>();
      break;
    default:
      return with_folding<C>(op, body);
  }
}

}  // namespace tessera::folds
