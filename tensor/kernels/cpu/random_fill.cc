#include "tessera/tensor/kernels/random_fill.h"

#include <type_traits>

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/random_math.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// The dtypes that are filled: any dtype, or floating ones.
enum class Elements { kAny, kFloating };

// Real numbers are drawn in double only for f64.
template <class T, class Y, Elements kElements>
inline constexpr bool kOccurs = std::is_integral_v<T> ||
                                (std::is_same_v<T, double> == std::is_same_v<Y, double> &&
                                 (kElements == Elements::kAny || !std::is_integral_v<Y>));

// T is the type in which numbers are drawn, kPerBlock of them from one block of words; `draw` makes
// them from the words.
template <class T, int kPerBlock, Elements kElements, class Draw>
void fill(const RandomFillKernel::Args& a, Draw draw) {
  const std::uint64_t key = a.key;
  const std::int64_t first = a.first_position;
  const auto t = cpu::make_traversal(a.y.shape, a.y.strides, a.position_strides);
  with_type(a.y.dtype, [&]<class Y>() {
    if constexpr (kOccurs<T, Y, kElements>) {
      Y* y = a.y.as<Y>();
      cpu::parallel_walk(t, [=](const auto& offsets, const auto& steps, std::int64_t count) {
        // Adjacent positions mostly share a block, so a block is drawn only when it changes.
        std::array<T, kPerBlock> numbers{};
        std::int64_t drawn = -1;
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t position = first + offsets[1] + i * steps[1];
          const std::int64_t block = position / kPerBlock;
          if (block != drawn) {
            numbers = draw(random::philox(key, static_cast<std::uint64_t>(block)));
          }
          drawn = block;
          y[offsets[0] + i * steps[0]] =
              convert_element<Y>(numbers[static_cast<std::size_t>(position % kPerBlock)]);
        }
      });
    }
  });
}

// Real numbers: `number(x)` makes the result from `source`'s value for the words.
template <class T, Elements kElements = Elements::kFloating, class Source, class Number>
void fill_real(const RandomFillKernel::Args& a, Source source, Number number) {
  constexpr int kPerBlock = random::kNumbersPerBlock<T>;
  fill<T, kPerBlock, kElements>(a, [=](const random::Words& words) {
    const random::Numbers<T> from = source(words, T{});
    std::array<T, kPerBlock> out;
    for (int i = 0; i < kPerBlock; ++i) out[static_cast<std::size_t>(i)] = number(from.n[i]);
    return out;
  });
}

// By the inverse of the distribution function, in f64 also for f32: the tails need it.
template <class T>
void fill_truncated(const RandomFillKernel::Args& a) {
  const double below = scalar::normal(a.low).cdf, inside = scalar::normal(a.high).cdf - below;
  fill_real<T>(a, random::uniforms<T>, [=, &a](T u) {
    const double x = random::normal_quantile(below + inside * static_cast<double>(u));
    const double bounded = x < a.low ? a.low : x > a.high ? a.high : x;
    return static_cast<T>(scalar::fma(bounded, a.scale, a.offset));
  });
}

template <class T>
void fill_as(const RandomFillKernel::Args& a) {
  const T offset = static_cast<T>(a.offset), scale = static_cast<T>(a.scale);
  const auto scaled = [=](T x) { return scalar::fma(x, scale, offset); };
  switch (a.distribution) {
    case Distribution::kUniform:
      return fill_real<T>(a, random::uniforms<T>, scaled);
    case Distribution::kNormal:
      return fill_real<T>(a, random::normals<T>, scaled);
    case Distribution::kTruncatedNormal:
      return fill_truncated<T>(a);
    case Distribution::kBernoulli:
      return fill_real<T, Elements::kAny>(a, random::uniforms<T>,
                                          [=](T u) { return u < scale ? T(1) : T(0); });
    case Distribution::kIntegers:
      return;
  }
}

// The upper half of a 128-bit product: as uniform as 64 random bits allow.
void fill_integers(const RandomFillKernel::Args& a) {
  fill<std::int64_t, 2, Elements::kAny>(a, [offset = static_cast<std::int64_t>(a.offset),
                                            range = a.range](const random::Words& words) {
    std::array<std::int64_t, 2> out;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::uint64_t bits = (std::uint64_t{words.w[2 * i]} << 32) | words.w[2 * i + 1];
      const auto scaled = static_cast<unsigned __int128>(bits) * range;
      out[i] = offset + static_cast<std::int64_t>(scaled >> 64);
    }
    return out;
  });
}

}  // namespace

void RandomFillKernel::cpu(const Args& a, Workspace) {
  if (a.distribution == Distribution::kIntegers) return fill_integers(a);
  with_floating_type(a.y.dtype, [&]<class T>() { fill_as<T>(a); });
}

}  // namespace tessera
