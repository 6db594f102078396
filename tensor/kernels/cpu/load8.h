#pragma once

/// Eight adjacent elements of a floating dtype of up to 32 bits, as f32.

#include <immintrin.h>

#include "tessera/tensor/half.h"

namespace tessera::cpu {

inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
inline __m256 load8(const BFloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m256 load8(const Float16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

}  // namespace tessera::cpu
