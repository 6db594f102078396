#include "tessera/tensor/kernels/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/cpu/philox_run.h"
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

// Blocks of the generator that are drawn together.
constexpr std::int64_t kWide = 96;

// out[i * step] = the number at position + i, converted, i < n.
template <class T, int kPerBlock, class Y, class Draw>
void fill_adjacent(std::uint64_t key, std::int64_t position, std::int64_t n, const Draw& draw,
                   Y* out, std::int64_t step) {
  random::Words words[kWide];
  T numbers[kWide * kPerBlock];
  while (n > 0) {
    const std::int64_t skip = position % kPerBlock;
    const std::int64_t count = std::min(n, kWide * kPerBlock - skip);
    const std::int64_t blocks = (skip + count + kPerBlock - 1) / kPerBlock;
    cpu::philox_run(key, position / kPerBlock, blocks, words);
    draw(words, blocks, numbers);
    if (step == 1) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = convert_element<Y>(numbers[skip + i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        out[i * step] = convert_element<Y>(numbers[skip + i]);
    }
    out += count * step;
    position += count;
    n -= count;
  }
}

// T is the type in which numbers are drawn, kPerBlock of them from one block of words; draw(words,
// blocks, numbers) makes them.
template <class T, int kPerBlock, Elements kElements, class Draw>
void fill(const RandomFillKernel::Args& a, Draw draw) {
  const auto t = cpu::make_traversal(a.y.shape, a.y.strides, a.position_strides);
  with_type(a.y.dtype, [&]<class Y>() {
    if constexpr (kOccurs<T, Y, kElements>) {
      cpu::parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t count) {
        Y* y = a.y.as<Y>() + offsets[0];
        const std::int64_t position = a.first_position + offsets[1];
        if (steps[1] == 1 || count == 1)
          return fill_adjacent<T, kPerBlock>(a.key, position, count, draw, y, steps[0]);
        for (std::int64_t i = 0; i < count; ++i)
          fill_adjacent<T, kPerBlock>(a.key, position + i * steps[1], 1, draw, y + i * steps[0], 1);
      });
    }
  });
}

// kNumbersPerBlock<T> uniform numbers from each block of words.
template <class T>
void draw_uniforms(const random::Words* words, std::int64_t blocks, T* numbers) {
  constexpr int kPerBlock = random::kNumbersPerBlock<T>;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const random::Numbers<T> drawn = random::uniforms(words[b], T{});
    for (int i = 0; i < kPerBlock; ++i) numbers[b * kPerBlock + i] = drawn.n[i];
  }
}

// Real numbers: change(numbers, n) makes the result from n uniform numbers, in place.
template <class T, Elements kElements = Elements::kFloating, class Change>
void fill_real(const RandomFillKernel::Args& a, Change change) {
  constexpr int kPerBlock = random::kNumbersPerBlock<T>;
  fill<T, kPerBlock, kElements>(a,
                                [=](const random::Words* words, std::int64_t blocks, T* numbers) {
                                  draw_uniforms(words, blocks, numbers);
                                  change(numbers, blocks * kPerBlock);
                                });
}

// The same, number by number.
template <class T, Elements kElements = Elements::kFloating, class Number>
void fill_each(const RandomFillKernel::Args& a, Number number) {
  fill_real<T, kElements>(a, [=](T* numbers, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) numbers[i] = number(numbers[i]);
  });
}

// By the inverse of the distribution function, in f64 also for f32: the tails need it.
template <class T>
void fill_truncated(const RandomFillKernel::Args& a) {
  const double below = scalar::normal(a.low).cdf, inside = scalar::normal(a.high).cdf - below;
  fill_each<T>(a, [=, &a](T u) {
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
      return fill_each<T>(a, scaled);
    case Distribution::kNormal:
      return fill_real<T>(a, [=](T* numbers, std::int64_t n) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; i += 2) {
          T first = numbers[i], second = numbers[i + 1];
          random::make_normal(first, second);
          numbers[i] = scaled(first);
          numbers[i + 1] = scaled(second);
        }
      });
    case Distribution::kTruncatedNormal:
      return fill_truncated<T>(a);
    case Distribution::kBernoulli:
      return fill_each<T, Elements::kAny>(a, [=](T u) { return u < scale ? T(1) : T(0); });
    case Distribution::kIntegers:
      return;
  }
}

// The upper half of a 128-bit product: as uniform as 64 random bits allow.
void fill_integers(const RandomFillKernel::Args& a) {
  fill<std::int64_t, 2, Elements::kAny>(
      a, [offset = static_cast<std::int64_t>(a.offset), range = a.range](
             const random::Words* words, std::int64_t blocks, std::int64_t* numbers) {
        for (std::int64_t i = 0; i < 2 * blocks; ++i) {
          const std::uint32_t* w = words[i / 2].w + 2 * (i % 2);
          const auto scaled =
              static_cast<unsigned __int128>((std::uint64_t{w[0]} << 32) | w[1]) * range;
          numbers[i] = offset + static_cast<std::int64_t>(scaled >> 64);
        }
      });
}

}  // namespace

void RandomFillKernel::cpu(const Args& a, Workspace) {
  if (a.distribution == Distribution::kIntegers) return fill_integers(a);
  with_floating_type(a.y.dtype, [&]<class T>() { fill_as<T>(a); });
}

namespace {

// The random words of n elements, the first at `position`, the next `step` further each; four come from one block. Uses
// `room`, for n / 4 + 2 blocks.
const std::uint32_t* words_at(std::uint64_t key, std::int64_t position, std::int64_t step,
                              std::int64_t n, random::Words* room) {
  if (step == 1) {
    const std::int64_t skip = position % 4;
    cpu::philox_run(key, position / 4, (skip + n + 3) / 4, room);
    return room->w + skip;
  }
  for (std::int64_t i = 0; i < n; ++i, position += step)
    room[i / 4].w[i % 4] =
        random::philox(key, static_cast<std::uint64_t>(position / 4)).w[position % 4];
  return room->w;
}

static_assert(cpu::kBlockLength == kMaskBlock && cpu::kPiece % kMaskBlock == 0);

// The words of a mask for the block that begins at element `begin`.
std::uint32_t* mask_words(void* mask, std::int64_t begin) {
  return static_cast<std::uint32_t*>(mask) + begin / kMaskBlock * kMaskWords;
}
const std::uint32_t* mask_words(const void* mask, std::int64_t begin) {
  return static_cast<const std::uint32_t*>(mask) + begin / kMaskBlock * kMaskWords;
}

// Packs the flags of a block, 0 or 1.
void pack_mask(const std::uint32_t* flags, std::uint32_t* mask) {
  std::uint32_t words[kMaskWords] = {};
  for (std::int64_t bit = 0; bit < 32; ++bit) {
    for (std::int64_t w = 0; w < kMaskWords; ++w) words[w] |= flags[bit * kMaskWords + w] << bit;
  }
  std::copy_n(words, kMaskWords, mask);
}

template <class C>
void drop(const DropoutKernel::Args& a) {
  const cpu::Input x(a.x);
  const cpu::Output y(a.y);
  const auto positions = cpu::make_traversal(a.x.shape, a.position_strides);
  const C scale = static_cast<C>(a.scale);
  // An element's uniform number is the upper 24 bits of its word, divided by 2^24; it is kept if that is at least p.
  const auto least = static_cast<std::int32_t>(std::ceil(a.p * 0x1p24));
  cpu::parallel_pieces(a.x.numel(), [&](std::int64_t begin, std::int64_t end) {
    C in[cpu::kBlockLength], out[cpu::kBlockLength];
    std::uint32_t flags[kMaskBlock] = {};
    random::Words room[cpu::kBlockLength / 4 + 2];
    for (std::int64_t at = begin; at < end; at += cpu::kBlockLength) {
      const std::int64_t n = std::min(cpu::kBlockLength, end - at);
      const C* from = x.read(at, n, in);
      C* const to = y.place(at, out);
      std::int64_t done = 0;
      cpu::walk(positions, at, at + n, [&](const auto& offsets, const auto& steps, auto count) {
        const std::uint32_t* const words =
            words_at(a.key, a.first_position + offsets[0], steps[0], count, room);
#pragma GCC ivdep
        for (std::int64_t i = 0; i < count; ++i) {
          const C kept = from[done + i] * scale;
          const bool is_kept = static_cast<std::int32_t>(words[i] >> 8) >= least;
          flags[done + i] = is_kept;
          to[done + i] = is_kept ? kept : C(0);
        }
        done += count;
      });
      y.commit(at, n, to);
      if (a.mask.defined()) {
        std::fill(flags + n, flags + kMaskBlock, 0);
        pack_mask(flags, mask_words(a.mask.data, at));
      }
    }
  });
}

// y = scale * x where `bit` of each word is set, else 0; nothing for n = 0. Unrolled, this loop is vectorized by GCC 12 across
// bits instead of words, with permutations, and takes more than twice as long.
template <class C>
inline void scale_row(std::int64_t n, const std::uint32_t* words, std::int64_t bit, C scale,
                      const C* x, C* y) {
  const std::uint32_t selected = bit < 32 ? 1u << bit : 0;
#pragma GCC ivdep
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < n; ++i) {
    const C kept = x[i] * scale;
    y[i] = (words[i] & selected) != 0 ? kept : C(0);
  }
}

template <class C>
void scale_masked(const MaskedScaleKernel::Args& a) {
  const cpu::Input x(a.x);
  const cpu::Output y(a.y);
  const C scale = static_cast<C>(a.scale);
  cpu::parallel_pieces(a.x.numel(), [&](std::int64_t begin, std::int64_t end) {
    C in[cpu::kBlockLength], out[cpu::kBlockLength];
    for (std::int64_t at = begin; at < end; at += cpu::kBlockLength) {
      const std::int64_t n = std::min(cpu::kBlockLength, end - at);
      const C* const from = x.read(at, n, in);
      C* const to = y.place(at, out);
      const std::uint32_t* const words = mask_words(a.mask.data, at);
      const std::int64_t rows = n / kMaskWords, rest = n % kMaskWords;
      for (std::int64_t bit = 0; bit < rows; ++bit)
        scale_row(kMaskWords, words, bit, scale, from + bit * kMaskWords, to + bit * kMaskWords);
      scale_row(rest, words, rows, scale, from + n - rest, to + n - rest);
      y.commit(at, n, to);
    }
  });
}

}  // namespace

void DropoutKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.x.dtype, [&]<class C>() { drop<C>(a); });
}

void MaskedScaleKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.x.dtype, [&]<class C>() { scale_masked<C>(a); });
}

}  // namespace tessera
