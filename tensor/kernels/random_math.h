#pragma once

/// Counter-based random numbers of one position, the same bits on CPU and GPU. See random.h.

#include <array>
#include <cmath>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera::random {

/// Four random words.
struct Words {
  std::uint32_t w[4];
};

/// Philox4x32-10: ten rounds on the counter `block`, under `key`.
TESSERA_HD Words philox(std::uint64_t key, Words counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter.w[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter.w[2];
    counter = {
        {static_cast<std::uint32_t>(p1 >> 32) ^ counter.w[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ counter.w[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// Block number `block` of a key's stream.
TESSERA_HD Words philox(std::uint64_t key, std::uint64_t block) {
  return philox(key, Words{{static_cast<std::uint32_t>(block),
                            static_cast<std::uint32_t>(block >> 32), 0u, 0u}});
}

/// What one block of four words yields: four f32 or two f64 numbers.
template <class T>
inline constexpr int kNumbersPerBlock = sizeof(T) == 4 ? 4 : 2;

template <class T>
struct Numbers {
  T n[kNumbersPerBlock<T>];
};

/// Uniform in [0, 1): 24 bits of a word, 53 bits of two.
TESSERA_HD Numbers<float> uniforms(const Words& words, float /*type*/) {
  Numbers<float> out;
  for (int i = 0; i < 4; ++i) out.n[i] = static_cast<float>(words.w[i] >> 8) * 0x1p-24f;
  return out;
}
TESSERA_HD Numbers<double> uniforms(const Words& words, double /*type*/) {
  Numbers<double> out;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t bits = (std::uint64_t{words.w[2 * i]} << 32) | words.w[2 * i + 1];
    out.n[i] = static_cast<double>(bits >> 11) * 0x1p-53;
  }
  return out;
}

/// Standard normal, by Box and Muller: two from two uniforms.
template <class T>
TESSERA_HD Numbers<T> normals(const Words& words, T type) {
  const Numbers<T> u = uniforms(words, type);
  Numbers<T> out;
  for (int i = 0; i < kNumbersPerBlock<T>; i += 2) {
    // 1 - u lies in (0, 1]: the logarithm exists.
    const T radius = std::sqrt(T(-2) * scalar::log_portable(T(1) - u.n[i]));
    const scalar::SinCos<T> angle = scalar::sincos_turns(u.n[i + 1]);
    out.n[i] = radius * angle.cos;
    out.n[i + 1] = radius * angle.sin;
  }
  return out;
}

}  // namespace tessera::random
