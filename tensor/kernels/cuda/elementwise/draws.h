#pragma once

/// Random numbers by position for a thread's elements. For .cu files.

#include <cstdint>

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/math/random_math.h"

namespace tessera::cuda {

/// out[k] = the random number at position `first` + the position operand's value for the k-th
/// element of the part. draw(block) gives the numbers of a block of the generator as
/// random::Numbers<T>. For runs, which begin at a multiple of their length, a block is drawn once.
template <class T, int G, int N, class Draw>
__device__ __forceinline__ void draw_part(const Runs<N>& runs, int operand, const Part& part,
                                          std::int64_t first, T (&out)[G], Draw draw) {
  constexpr int kPerBlock = random::kNumbersPerBlock<T>;
  Places at = {};
  find_part<G>(runs, operand, part, at);
  const bool single = part.run == 1;
  const int blocks = single ? kSingles : G / kPerBlock;
#pragma unroll
  for (int k = 0; k < G; ++k) out[k] = T{};
#pragma unroll 1  // `draw` is long
  for (int b = 0; b < blocks; ++b) {
    const auto position = static_cast<std::uint64_t>(first + at[0]);
    const random::Numbers<T> numbers = draw(position / kPerBlock);
    if (single) {
      T chosen = numbers.n[0];
#pragma unroll
      for (int i = 1; i < kPerBlock; ++i)
        chosen = static_cast<int>(position % kPerBlock) == i ? numbers.n[i] : chosen;
      rotate(out, chosen);
      rotate(at, at[0]);
    } else {
#pragma unroll
      for (int i = 0; i < kPerBlock; ++i) rotate(out, numbers.n[i]);
      at[0] = (b + 1) * kPerBlock % 4 == 0 ? at[1] : at[0] + kPerBlock;
    }
  }
  if (single) {
#pragma unroll
    for (int k = kSingles; k < G; ++k) rotate(out, T{});
  }
}

}  // namespace tessera::cuda
