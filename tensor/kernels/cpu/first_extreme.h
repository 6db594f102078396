#pragma once

/// The first of the largest or smallest elements of a run. The first NaN comes before all numbers.

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/tensor/half.h"
#include "tessera/tensor/kernels/math/convert_element.h"

namespace tessera::cpu {

/// The extreme of a run that is read in parts. The maximum of a part costs one instruction per
/// vector, its position would cost several: the position is looked for afterwards, and only in
/// parts with an element beyond all before them. C is the compute type.
template <class C, bool largest>
class FirstExtreme {
 public:
  /// The next `n` elements of the run, of type C or bf16; `first` elements came before them. Returns
  /// false if no later element can win.
  template <class T>
  bool add(const T* x, std::int64_t n, std::int64_t first) {
    if (n < kStep) return add_each(x, n, first);
    C most;
    if (!extreme_of(x, n, most)) {
      position_ = first + first_that(x, n, [](auto value) { return value != value; });
      return false;
    }
    if (position_ >= 0 && !beyond(most, best_)) return true;
    best_ = most;
    position_ = first + first_that(x, n, [most](auto value) { return value == most; });
    return true;
  }
  /// -1 if the run has no elements.
  std::int64_t position() const { return position_; }

 private:
  // Types of the compiler: a comparison gives a vector of integers, all bits of each set or not.
  static constexpr int kWidth = 32 / static_cast<int>(sizeof(C));
  using Vector [[gnu::vector_size(32)]] = C;
  using Mask [[gnu::vector_size(32)]] =
      std::conditional_t<sizeof(C) == 4, std::int32_t, std::int64_t>;
  // So many vectors hide how long each comparison takes.
  static constexpr int kVectors = 4;
  static constexpr std::int64_t kStep = kVectors * kWidth;

  static bool beyond(C a, C b) { return largest ? a > b : a < b; }
  static Vector further(Vector a, Vector b) { return (largest ? a > b : a < b) ? a : b; }
  static bool any(Mask mask) {
    const auto bits = reinterpret_cast<__m256i>(mask);
    return _mm256_testz_si256(bits, bits) == 0;
  }
  static Vector load(const C* x) {
    Vector value;
    std::memcpy(&value, x, sizeof(value));
    return value;
  }
  static Vector load(const BFloat16* x) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return reinterpret_cast<Vector>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  template <class T>
  bool add_each(const T* x, std::int64_t n, std::int64_t first) {
    for (std::int64_t i = 0; i < n; ++i) {
      const C value = convert_element<C>(x[i]);
      const bool no_number = value != value;
      if (no_number || position_ < 0 || beyond(value, best_)) {
        best_ = value;
        position_ = first + i;
      }
      if (no_number) return false;
    }
    return true;
  }

  // The extreme of at least kStep elements; false if one of them is NaN.
  template <class T>
  static bool extreme_of(const T* x, std::int64_t n, C& extreme) {
    Vector most[kVectors];
    Mask no_number{};
    for (int v = 0; v < kVectors; ++v) most[v] = load(x + v * kWidth);
    const auto take = [&](const T* from) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Vector value = load(from + v * kWidth);
        most[v] = further(value, most[v]);
        no_number |= value != value;
      }
    };
    for (std::int64_t at = 0; at + kStep <= n; at += kStep) take(x + at);
    take(x + n - kStep);  // some elements again, which changes no maximum
    const Vector both = further(further(most[0], most[1]), further(most[2], most[3]));
    extreme = both[0];
    for (int i = 1; i < kWidth; ++i) extreme = beyond(both[i], extreme) ? both[i] : extreme;
    return !any(no_number);
  }

  // The first element for which `is` holds; there is one.
  template <class T, class Is>
  static std::int64_t first_that(const T* x, std::int64_t n, const Is& is) {
    std::int64_t at = 0;
    for (; at + kStep <= n; at += kStep) {
      Mask found{};
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) found |= is(load(x + at + v * kWidth));
      if (any(found)) break;
    }
    while (!is(convert_element<C>(x[at]))) ++at;
    return at;
  }

  C best_ = 0;
  std::int64_t position_ = -1;
};

}  // namespace tessera::cpu
