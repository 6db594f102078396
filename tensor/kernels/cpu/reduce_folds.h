#pragma once

/// The ways to reduce. Each says, for elements of compute type C:
///
///     Acc, Total   what folds inside a block, and over blocks (8 bytes)
///     kNone        what no elements give
///     term         one element, given the result's shift
///     fold         two of them
///     finish       from the total to the result, a double or an int64

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera::cpu {

template <class C>
using Wide = std::conditional_t<std::is_integral_v<C>, std::int64_t, double>;

/// What finish() may ask.
struct ReduceNumbers {
  double count = 0;
  double parameter = 0;
};

struct Adds {
  static constexpr int kNone = 0;
  template <class A>
  static A fold(A a, A b) {
    return a + b;
  }
};

template <class C>
struct SumFold : Adds {
  using Acc = C;
  using Total = Wide<C>;
  static Acc term(C x, double, const ReduceNumbers&) { return x; }
  static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};

template <class C>
struct MeanFold : SumFold<C> {
  static double finish(double total, double, const ReduceNumbers& n) { return total / n.count; }
};

template <class C>
struct SumAbsFold : SumFold<C> {
  static C term(C x, double, const ReduceNumbers&) { return std::abs(x); }
};

template <class C>
struct SquaresFold : Adds {
  using Acc = double;
  using Total = double;
  static Acc term(C x, double, const ReduceNumbers&) {
    return scalar::mul(static_cast<double>(x), static_cast<double>(x));
  }
  static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};

template <class C>
struct Norm2Fold : SquaresFold<C> {
  static double finish(double total, double, const ReduceNumbers&) { return std::sqrt(total); }
};

template <class C>
struct NormPFold : SquaresFold<C> {
  static double term(C x, double, const ReduceNumbers& n) {
    return std::pow(std::abs(static_cast<double>(x)), n.parameter);
  }
  static double finish(double total, double, const ReduceNumbers& n) {
    return std::pow(total, 1 / n.parameter);
  }
};

/// Deviations from the mean, which is the shift.
template <class C>
struct VarFold : SquaresFold<C> {
  static double term(C x, double shift, const ReduceNumbers&) {
    const double deviation = static_cast<double>(x) - shift;
    return scalar::mul(deviation, deviation);
  }
  static double finish(double total, double, const ReduceNumbers& n) {
    const double degrees = n.count - n.parameter;
    return total / (degrees > 0 ? degrees : 0);
  }
};

template <class C>
struct StddevFold : VarFold<C> {
  static double finish(double total, double shift, const ReduceNumbers& n) {
    return std::sqrt(VarFold<C>::finish(total, shift, n));
  }
};

/// The shift is the largest element. Where that is infinite, 0 stands for it: differences of
/// infinities would be NaN.
template <class C>
struct LogSumExpFold : Adds {
  using Acc = C;
  using Total = double;
  static double finite(double shift) { return std::isfinite(shift) ? shift : 0; }
  static Acc term(C x, double shift, const ReduceNumbers&) {
    return scalar::exp(x - static_cast<C>(finite(shift)));
  }
  static double finish(double total, double shift, const ReduceNumbers&) {
    return scalar::log(total) + finite(shift);
  }
};

/// 1 for what counts; exact, for a block has few elements.
template <class C>
struct CountFold : SumFold<C> {
  static C term(C x, double, const ReduceNumbers&) { return x != C(0) ? C(1) : C(0); }
};

template <class C>
struct AnyFold : CountFold<C> {
  static Wide<C> finish(Wide<C> total, double, const ReduceNumbers&) { return total != 0; }
};

template <class C>
struct AllFold : SumFold<C> {
  static C term(C x, double, const ReduceNumbers&) { return x != C(0) ? C(0) : C(1); }
  static Wide<C> finish(Wide<C> total, double, const ReduceNumbers&) { return total == 0; }
};

template <class C>
struct ProdFold {
  using Acc = Wide<C>;
  using Total = Acc;
  static constexpr int kNone = 1;
  static Acc term(C x, double, const ReduceNumbers&) { return x; }
  template <class A>
  static A fold(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return scalar::mul(a, b);
    }
  }
  static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};

/// The largest, or the smallest; a NaN once met stays.
template <class C, bool largest>
struct ExtremeFold {
  using Acc = C;
  using Total = Wide<C>;
  using Limits = std::numeric_limits<C>;
  static constexpr C kHigh = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr C kLow = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  static constexpr C kNone = largest ? kLow : kHigh;
  static Acc term(C x, double, const ReduceNumbers&) { return x; }
  template <class A>
  static A fold(A a, A b) {
    const bool better = largest ? b > a : b < a;
    return (better | (b != b)) ? b : a;  // | and not ||: without branches it becomes vector code
  }
  static Total finish(Total total, double, const ReduceNumbers&) { return total; }
};
template <class C>
using MaxFold = ExtremeFold<C, true>;
template <class C>
using MinFold = ExtremeFold<C, false>;

template <class C>
struct MaxAbsFold : MaxFold<C> {
  static C term(C x, double, const ReduceNumbers&) { return std::abs(x); }
};
template <class C>
struct MinAbsFold : MinFold<C> {
  static C term(C x, double, const ReduceNumbers&) { return std::abs(x); }
};

}  // namespace tessera::cpu
