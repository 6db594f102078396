#pragma once

/// Elementwise work where all tensors have one dtype and lie along the same dim: one loop reads elements, converts,
/// computes, converts and writes, all in registers. An operand that is a number, or is broadcast along that dim, is one
/// value for a run. The bits are those of the way through buffers, but for signalling NaNs.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

template <class F, class... Each>
inline constexpr bool kIsOneOf = (std::is_same_v<F, Each> || ...);

namespace detail {

template <class F, class Functors>
inline constexpr bool kIsAmong = false;
template <class F, class... Each>
inline constexpr bool kIsAmong<F, std::tuple<Each...>> = kIsOneOf<F, Each...>;

/// True for functors that take about as long as reading and writing elements, and for functions of other kernels. For
/// longer functors buffers cost little, and the loops below would be many.
template <class F>
inline constexpr bool kIsShort =
    kIsOneOf<F, functors::Neg, functors::Abs, functors::Sign, functors::Square,
             functors::Reciprocal, functors::Sqrt, functors::Rsqrt, functors::Relu, functors::Floor,
             functors::Ceil, functors::Round, functors::Trunc, functors::Add, functors::Sub,
             functors::Mul, functors::Div, functors::Maximum, functors::Minimum, functors::Fmax,
             functors::Fmin, functors::ReluBackward, functors::TanhBackward,
             functors::SigmoidBackward> ||
    !(kIsAmong<F, functors::Unary> || kIsAmong<F, functors::Binary>);

/// Functors whose result is exact in the dtype of the operands: one of them, up to its sign, or an integer near one.
template <class F>
inline constexpr bool kIsExact =
    kIsOneOf<F, functors::Neg, functors::Abs, functors::Relu, functors::Floor, functors::Ceil,
             functors::Round, functors::Trunc, functors::Maximum, functors::Minimum, functors::Fmax,
             functors::Fmin, functors::ReluBackward>;

/// n elements of type T, as values of type C.
template <class C, class T>
struct Elements {
  static constexpr bool kIsSame = false;
  const T* first;
  C operator[](std::int64_t i) const { return convert_element<C>(first[i]); }
};

/// The same value n times.
template <class C>
struct Same {
  static constexpr bool kIsSame = true;
  C value;
  C operator[](std::int64_t) const { return value; }
};

/// The operands of one run. An operand with a step of 0 is a value.
template <class C, class T, std::size_t N>
struct RunOperands {
  std::array<const T*, N> first;
  std::array<C, N> value;
  std::array<bool, N> is_same;
};

/// y[i] = f(operands[i]...), i < n, by a loop for each choice of elements and values.
template <class C, class T, class F, std::size_t N, class... Known>
void compute_run(std::int64_t n, F f, T* y, const RunOperands<C, T, N>& operands,
                 const Known&... known) {
  constexpr std::size_t kNext = sizeof...(Known);
  if constexpr (kNext < N) {
    if (!operands.is_same[kNext])
      return compute_run<C>(n, f, y, operands, known..., Elements<C, T>{operands.first[kNext]});
    // There is no loop for values alone.
    if constexpr (kNext + 1 < N || !(Known::kIsSame && ...))
      compute_run<C>(n, f, y, operands, known..., Same<C>{operands.value[kNext]});
  } else {
    // A number need not be exact in T.
    constexpr bool kExact = kIsExact<F> && !(Known::kIsSame || ...);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = stored<T, kExact>(C(f(known[i]...)));
  }
}

}  // namespace detail

/// y = f(operands...) for all elements of type T, computed in C, distributed over threads.
template <class C, class T, class F, std::size_t N>
void map_elements(const View& y, F f, const std::array<Operand, N>& operands) {
  Traversal<N + 1> t;
  t.ndim = y.shape.ndim();
  for (int d = 0; d < t.ndim; ++d) {
    t.shape[d] = y.shape[d];
    t.strides[N][d] = y.strides[d];
    for (std::size_t i = 0; i < N; ++i)
      t.strides[i][d] = operands[i].is_number() ? 0 : operands[i].view.strides[d];
  }
  parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t n) {
    detail::RunOperands<C, T, N> run = {};
    for (std::size_t i = 0; i < N; ++i) {
      run.is_same[i] = steps[i] == 0;
      run.first[i] = operands[i].view.template as<T>() + offsets[i];
      if (run.is_same[i])
        run.value[i] = operands[i].is_number() ? number_as<C>(operands[i].number)
                                               : convert_element<C>(*run.first[i]);
    }
    detail::compute_run<C>(n, f, y.as<T>() + offsets[N], run);
  });
}

/// True if all tensors have y's dtype, y has steps of 1 along the last dim and each operand of 1 or 0, not all 0.
template <std::size_t N>
bool is_direct(const View& y, const std::array<Operand, N>& operands) {
  constexpr std::int64_t kShortest = 16;  // shorter runs are faster through buffers
  const int last = y.shape.ndim() - 1;
  if (last < 0 || y.strides[last] != 1 || y.shape[last] < kShortest) return false;
  bool all_same = true;
  for (const Operand& each : operands) {
    if (each.is_number()) continue;
    const std::int64_t step = each.view.strides[last];
    if (each.view.dtype != y.dtype || (step != 0 && step != 1)) return false;
    all_same = all_same && step == 0;
  }
  return !all_same;
}

/// The same if is_direct(), if f is short and if elements of y's dtype are converted in registers; else false, and nothing
/// is computed.
template <class C, class F, std::size_t N>
bool map_direct(const View& y, F f, const std::array<Operand, N>& operands) {
  if constexpr (std::is_floating_point_v<C> && detail::kIsShort<F>) {
    if (!is_direct(y, operands)) return false;
    if (y.dtype == dtype_of<C>) {
      map_elements<C, C>(y, f, operands);
      return true;
    }
    if constexpr (std::is_same_v<C, float>) {
      if (y.dtype == DType::kBF16) {
        map_elements<C, BFloat16>(y, f, operands);
        return true;
      }
    }
  }
  return false;
}

}  // namespace tessera::cpu
