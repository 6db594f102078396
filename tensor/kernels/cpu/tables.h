#pragma once

/// Functions of one 16-bit element, looked up: such an element has 65,536 values, so a function that takes longer to
/// compute than to look up is computed once for each of them, with the bits that it has without a table. (Of a NaN the
/// sign and the payload may differ.)
///
/// A lookup costs about as much as moving an element: the values of real tensors are few, and their part of a table
/// stays in the cache.

#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/direct_map.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/functors_binary.h"

namespace tessera::cpu {

namespace detail {

inline constexpr std::int64_t kValues = 1 << 16;

/// f for every element of a 16-bit dtype, by its bits.
template <class F>
std::vector<float> all_values(DType dtype, const F& f) {
  std::vector<std::uint16_t> bits(kValues);
  std::iota(bits.begin(), bits.end(), std::uint16_t{0});
  std::vector<float> values(kValues);
  load_run(dtype, bits.data(), 1, kValues, values.data());
#pragma GCC ivdep
  for (std::int64_t i = 0; i < kValues; ++i) values[i] = f(values[i]);
  return values;
}

/// make(dtype) of bf16 or f16, made by the first call and kept for good. F is a type for each table.
template <class F, class Make>
const auto& made_once(DType dtype, const Make& make) {
  if (dtype == DType::kBF16) {
    static const auto* const bf16 = new auto(make(DType::kBF16));
    return *bf16;
  }
  static const auto* const f16 = new auto(make(DType::kF16));
  return *f16;
}

}  // namespace detail

/// Functors of one operand that are faster to look up.
template <class F>
inline constexpr bool kIsLookedUp =
    kIsOneOf<F, functors::Exp2, functors::Expm1, functors::Log, functors::Log2, functors::Log10,
             functors::Log1p, functors::Sin, functors::Cos, functors::Tan, functors::Asin,
             functors::Acos, functors::Atan, functors::Sinh, functors::Cosh, functors::Tanh,
             functors::Asinh, functors::Acosh, functors::Atanh, functors::Sinc, functors::Sigmoid,
             functors::Erf, functors::Erfc, functors::Erfinv, functors::Lgamma, functors::Digamma,
             functors::Gelu, functors::GeluTanh, functors::Silu, functors::Softplus>;

/// Functors of two operands that are dy times a function of the second, f(1, x), which is faster to look up.
template <class F>
inline constexpr bool kIsSlopeLookedUp =
    kIsOneOf<F, functors::GeluBackward, functors::GeluTanhBackward, functors::SiluBackward,
             functors::SoftplusBackward>;

/// True for `numel` elements that these apply to. Fewer are computed: making a table takes as long as so many.
inline bool is_looked_up(DType dtype, std::int64_t numel) {
  constexpr std::int64_t kWorthATable = 1 << 14;
  return (dtype == DType::kBF16 || dtype == DType::kF16) && numel >= kWorthATable;
}

/// The bits of f(x) in the dtype of x, by the bits of x: 128 KiB.
template <class F>
const std::uint16_t* results_of(DType dtype, const F& f) {
  return detail::made_once<F>(dtype,
                              [&f](DType of) {
                                const std::vector<float> values = detail::all_values(of, f);
                                std::vector<std::uint16_t> results(values.size());
                                store_run(of, results.data(), 1, detail::kValues, values.data());
                                return results;
                              })
      .data();
}

/// f(x) in f32, by the bits of x: 256 KiB.
template <class F>
const float* values_of(DType dtype, const F& f) {
  return detail::made_once<F>(dtype, [&f](DType of) { return detail::all_values(of, f); }).data();
}

/// out[i * out_stride] = table[from[i * stride]], i < n; `from` is the first of 16-bit elements.
template <class T>
void look_up_run(const T* table, const void* from, std::int64_t stride, std::int64_t n, void* out,
                 std::int64_t out_stride) {
  const auto* bits = static_cast<const Bits<std::uint16_t>::Any*>(from);
  const auto put_all = [&](const auto& put) {
    if (stride == 1 && out_stride == 1) {
      // A loop of three instructions would be a quarter slower where it lies badly in memory.
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < n; ++i) put(i, table[bits[i]]);
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) put(i * out_stride, table[bits[i * stride]]);
  };
  if constexpr (sizeof(T) == 2) {
    auto* to = static_cast<Bits<std::uint16_t>::Any*>(out);
    put_all([to](std::int64_t at, T value) { to[at] = value; });
  } else {
    auto* to = static_cast<T*>(out);
    put_all([to](std::int64_t at, T value) { to[at] = value; });
  }
}

}  // namespace tessera::cpu
