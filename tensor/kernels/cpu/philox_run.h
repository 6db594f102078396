#pragma once

/// The random words of adjacent blocks, in vectors: those of random::philox.

#include <cstdint>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tessera/tensor/kernels/math/random_math.h"

namespace tessera::cpu {

namespace detail {

#ifdef __AVX2__
/// Four blocks. A word is the lower half of a lane: the multiplication ignores the upper half, so whatever a step leaves
/// there does no harm. By hand, because the compiler multiplies all 64 bits.
struct FourCounters {
  __m256i w[4];

  void start(std::uint64_t block) {
    const __m256i first = _mm256_set1_epi64x(static_cast<long long>(block));
    w[0] = _mm256_add_epi64(first, _mm256_setr_epi64x(0, 1, 2, 3));
    w[1] = _mm256_srli_epi64(w[0], 32);
    w[2] = w[3] = _mm256_setzero_si256();
  }
  void round(__m256i k0, __m256i k1) {
    const __m256i p0 = _mm256_mul_epu32(_mm256_set1_epi64x(0xD2511F53), w[0]);
    const __m256i p1 = _mm256_mul_epu32(_mm256_set1_epi64x(0xCD9E8D57), w[2]);
    w[0] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(w[1], k0));
    w[1] = p1;
    w[2] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(w[3], k1));
    w[3] = p0;
  }
  void store(std::uint32_t* out) const {
    const __m256i first = _mm256_blend_epi32(w[0], _mm256_slli_epi64(w[1], 32), 0xAA);
    const __m256i last = _mm256_blend_epi32(w[2], _mm256_slli_epi64(w[3], 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(first, last);
    const __m256i odd = _mm256_unpackhi_epi64(first, last);
    auto* to = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

/// Blocks that are computed together: a round waits for its multiplication.
inline constexpr int kCounters = 4;
inline constexpr std::int64_t kBlocksAtOnce = 4 * kCounters;

inline void philox_at_once(std::uint64_t key, std::uint64_t first, std::uint32_t* out) {
  FourCounters counters[kCounters];
  for (int c = 0; c < kCounters; ++c) counters[c].start(first + 4 * static_cast<unsigned>(c));
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const __m256i first_key = _mm256_set1_epi32(static_cast<int>(k0));
    const __m256i second_key = _mm256_set1_epi32(static_cast<int>(k1));
#pragma GCC unroll 4
    for (int c = 0; c < kCounters; ++c) counters[c].round(first_key, second_key);
    k0 += random::kPhiloxLowStep;
    k1 += random::kPhiloxHighStep;
  }
  for (int c = 0; c < kCounters; ++c) counters[c].store(out + 16 * c);
}
#endif

}  // namespace detail

/// The words of blocks [first, first + blocks), four for each.
inline void philox_run(std::uint64_t key, std::int64_t first, std::int64_t blocks,
                       random::Words* out) {
  std::int64_t b = 0;
#ifdef __AVX2__
  for (; b + detail::kBlocksAtOnce <= blocks; b += detail::kBlocksAtOnce)
    detail::philox_at_once(key, static_cast<std::uint64_t>(first + b), out[b].w);
#endif
  for (; b < blocks; ++b) out[b] = random::philox(key, static_cast<std::uint64_t>(first + b));
}

}  // namespace tessera::cpu
