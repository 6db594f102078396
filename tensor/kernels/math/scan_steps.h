#pragma once

/// The steps of a running result, for CPU and GPU. A step has a State, which covers some adjacent
/// elements: none() of no element, of(x, i) of element i, combine(before, after) of two neighbours,
/// and result(state), a Result, which is stored. C, the compute type, is double or std::int64_t.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/scan.h"

namespace tessera {

template <class C>
struct SumStep {
  using State = C;
  using Result = C;
  TESSERA_HD static State none() { return 0; }
  TESSERA_HD static State of(C x, std::int64_t) { return x; }
  TESSERA_HD static State combine(double before, double after) { return before + after; }
  /// Wraps around.
  TESSERA_HD static State combine(std::int64_t before, std::int64_t after) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(before) +
                                     static_cast<std::uint64_t>(after));
  }
  TESSERA_HD static Result result(State state) { return state; }
};

template <class C>
struct ProdStep {
  using State = C;
  using Result = C;
  TESSERA_HD static State none() { return 1; }
  TESSERA_HD static State of(C x, std::int64_t) { return x; }
  TESSERA_HD static State combine(double before, double after) { return before * after; }
  /// Wraps around.
  TESSERA_HD static State combine(std::int64_t before, std::int64_t after) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(before) *
                                     static_cast<std::uint64_t>(after));
  }
  TESSERA_HD static Result result(State state) { return state; }
};

/// The product of floating elements as value * 2^exponent, value from 0.5 to 1 (or 0, an infinity,
/// NaN), so that a product of some elements in the middle of a line neither overflows nor
/// underflows. It is rounded like a double with an unlimited exponent.
struct WideProdStep {
  struct State {
    double value;
    std::int64_t exponent;
  };
  using Result = double;
  TESSERA_HD static State none() { return {0.5, 1}; }
  TESSERA_HD static State of(double x, std::int64_t) {
    int exponent = 0;
    const double value = ::frexp(x, &exponent);
    return {value, exponent};
  }
  TESSERA_HD static State combine(const State& before, const State& after) {
    const double value = before.value * after.value;  // from 0.25
    const std::int64_t exponent = before.exponent + after.exponent;
    if (value > -0.5 && value < 0.5) return {value * 2, exponent - 1};
    return {value, exponent};
  }
  TESSERA_HD static Result result(const State& state) {
    constexpr std::int64_t kFar = 4096;  // beyond every double
    const std::int64_t exponent = state.exponent;
    return ::ldexp(state.value, static_cast<int>(exponent > kFar    ? kFar
                                                 : exponent < -kFar ? -kFar
                                                                    : exponent));
  }
};

/// The step to use where segments of a line are folded apart before they are combined.
template <class Step>
using SegmentStep = std::conditional_t<std::is_same_v<Step, ProdStep<double>>, WideProdStep, Step>;

/// Of equal elements the last one, of several NaN too. By position and not by the order of the two
/// states: a GPU's thread folds elements that others of other threads lie between.
template <class C, bool largest>
struct ExtremeStep {
  struct State {
    C value;
    std::int64_t at;  // < 0: no element
  };
  using Result = std::int64_t;
  TESSERA_HD static State none() { return {0, -1}; }
  TESSERA_HD static State of(C x, std::int64_t at) { return {x, at}; }
  TESSERA_HD static State combine(const State& before, const State& after) {
    if (after.at < 0) return before;
    if (before.at < 0) return after;
    const bool no_number = after.value != after.value, none_before = before.value != before.value;
    if (after.value == before.value || (no_number && none_before))
      return after.at > before.at ? after : before;
    const bool beyond = largest ? after.value > before.value : after.value < before.value;
    return no_number || beyond ? after : before;
  }
  TESSERA_HD static Result result(const State& state) { return state.at; }
};

struct LogSumExpStep {
  using State = double;
  using Result = double;
  TESSERA_HD static State none() { return -std::numeric_limits<double>::infinity(); }
  TESSERA_HD static State of(double x, std::int64_t) { return x; }
  TESSERA_HD static State combine(State before, State after) {
    if (before != before || after != after) return before + after;
    const double high = before > after ? before : after, low = before > after ? after : before;
    // Of equal infinities the difference is NaN.
    return high == low && high - low != 0 ? high : high + scalar::log1p(scalar::exp(low - high));
  }
  TESSERA_HD static Result result(State state) { return state; }
};

/// Calls body.template operator()<C, Step>() for the dtype of a scan's operand.
template <class Body>
void with_scan_step(DType dtype, ScanOp op, Body&& body) {
  const auto of_type = [&]<class C>() {
    switch (op) {
      case ScanOp::kSum:
        return body.template operator()<C, SumStep<C>>();
      case ScanOp::kProd:
        return body.template operator()<C, ProdStep<C>>();
      case ScanOp::kMax:
        return body.template operator()<C, ExtremeStep<C, true>>();
      case ScanOp::kMin:
        return body.template operator()<C, ExtremeStep<C, false>>();
      case ScanOp::kLogCumSumExp:
        return body.template operator()<double, LogSumExpStep>();
    }
  };
  is_floating(dtype) ? of_type.template operator()<double>()
                     : of_type.template operator()<std::int64_t>();
}

}  // namespace tessera
