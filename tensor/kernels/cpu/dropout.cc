#include "tessera/tensor/kernels/dropout.h"

#include <cmath>

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/math/random_math.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
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
