#include "tessera/tensor/kernels/random.h"

#include <cmath>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/blocks.h"
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

namespace {

constexpr int kPerBlock = random::kNumbersPerBlock<float>;
// Blocks of the generator that are drawn together, so that the compiler vectorizes the loop over
// them.
constexpr std::int64_t kWide = 16;

float uniform_at(std::uint64_t key, std::int64_t position) {
  const random::Words words = random::philox(key, static_cast<std::uint64_t>(position / kPerBlock));
  return random::uniforms(words, float{}).n[position % kPerBlock];
}

// The numbers of the generator's blocks [first, first + kWide).
void draw_wide(std::uint64_t key, std::int64_t first, float (&out)[kWide * kPerBlock]) {
  random::Words words[kWide];
  for (std::int64_t b = 0; b < kWide; ++b) {
    words[b] = random::philox(key, static_cast<std::uint64_t>(first + b));
  }
  for (std::int64_t b = 0; b < kWide; ++b) {
    const random::Numbers<float> numbers = random::uniforms(words[b], float{});
    for (int i = 0; i < kPerBlock; ++i) out[b * kPerBlock + i] = numbers.n[i];
  }
}

// out[i] = the number at position + i * step.
void uniforms_at(std::uint64_t key, std::int64_t position, std::int64_t step, std::int64_t n,
                 float* out) {
  if (step != 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = uniform_at(key, position + i * step);
    return;
  }
  float drawn[kWide * kPerBlock];
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t skip = (position + done) % kPerBlock;
    draw_wide(key, (position + done) / kPerBlock, drawn);
    const std::int64_t count = std::min(n - done, kWide * kPerBlock - skip);
    std::copy_n(drawn + skip, count, out + done);
    done += count;
  }
}

// The smallest f32 that is at least p: it keeps the same elements as p itself.
float threshold(double p) {
  const auto nearest = static_cast<float>(p);
  return nearest < p ? std::nextafter(nearest, 2.0f) : nearest;
}

template <class C>
void drop(const DropoutKernel::Args& a) {
  const cpu::Input x(a.x);
  const cpu::Output y(a.y);
  const auto positions = cpu::make_traversal(a.x.shape, a.position_strides);
  const C scale = static_cast<C>(a.scale);
  const float p = threshold(a.p);
  cpu::parallel_pieces(a.x.numel(), [&](std::int64_t begin, std::int64_t end) {
    C in[cpu::kBlockLength], out[cpu::kBlockLength];
    float uniforms[cpu::kBlockLength];
    for (std::int64_t at = begin; at < end; at += cpu::kBlockLength) {
      const std::int64_t n = std::min(cpu::kBlockLength, end - at);
      float* next = uniforms;
      cpu::walk(positions, at, at + n, [&](const auto& offsets, const auto& steps, auto count) {
        uniforms_at(a.key, a.first_position + offsets[0], steps[0], count, next);
        next += count;
      });
      const C* from = x.read(at, n, in);
      C* to = y.place(at, out);
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const C kept = from[i] * scale;
        to[i] = uniforms[i] >= p ? kept : C(0);
      }
      y.commit(at, n, to);
    }
  });
}

}  // namespace

void DropoutKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.x.dtype, [&]<class C>() { drop<C>(a); });
}

}  // namespace tessera
