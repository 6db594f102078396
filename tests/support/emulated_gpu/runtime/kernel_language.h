#pragma once

/// CUDA's words for a C++ compiler: included before a .cu file where kernels are built to run on
/// the CPU (`--config=emulated_gpu`). What is missing here is not used by kernels of Tessera: see
/// "The dialect" in tensor/kernels/cuda/README.md.

// Its built-in variables are ours.
#define __DEVICE_LAUNCH_PARAMETERS_H__
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <tuple>
#include <utility>

#include "tessera/tests/support/emulated_gpu/runtime/block_runner.h"

#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__
#define TESSERA_EMULATED_GPU 1

namespace tessera::emulated {

/// Issues a launch on a stream; the runtime of the emulated GPU has it. `body` holds copies of the
/// kernel's arguments.
cudaError_t issue(cudaStream_t stream, const Launch& launch, const char* kernel,
                  std::function<void()> body);

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// The value that the lane `source` gave; as on a GPU, a lane's own where `source` is outside the
/// section of `width` lanes.
template <class T, class Source>
T shuffle(T value, int width, Source source) {
  const WarpValues& all = exchange_in_warp(to_bits(value));
  const int lane = static_cast<int>(lane_index()), first = lane / width * width;
  const int from = source(lane);
  return from < first || from >= first + width ? value : from_bits<T>(all.lane[from]);
}

}  // namespace tessera::emulated

template <class... Parameters, class... Arguments>
cudaError_t emulated_launch(const cudaLaunchConfig_t& config, const char* name,
                            void (*kernel)(Parameters...), Arguments&&... arguments) {
  const tessera::emulated::Launch launch{
      .grid = {config.gridDim.x, config.gridDim.y, config.gridDim.z},
      .block = {config.blockDim.x, config.blockDim.y, config.blockDim.z},
      .shared_bytes = config.dynamicSmemBytes,
      .function = reinterpret_cast<const void*>(kernel)};
  std::tuple<std::remove_cv_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  return tessera::emulated::issue(config.stream, launch, name,
                                  [kernel, values] { std::apply(kernel, values); });
}

inline void __syncthreads() { tessera::emulated::synchronize_block(false); }
inline int __syncthreads_or(int vote) {
  return tessera::emulated::synchronize_block(vote != 0).count != 0;
}
inline int __syncthreads_and(int vote) {
  const auto votes = tessera::emulated::synchronize_block(vote != 0);
  return votes.count == votes.threads;
}
inline int __syncthreads_count(int vote) {
  return tessera::emulated::synchronize_block(vote != 0).count;
}
inline void __syncwarp(unsigned = ~0u) { tessera::emulated::exchange_in_warp(0); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

template <class T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  return tessera::emulated::shuffle(
      value, width, [&](int lane) { return lane / width * width + source % width; });
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  return tessera::emulated::shuffle(value, width, [&](int lane) { return lane ^ mask; });
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  return tessera::emulated::shuffle(value, width,
                                    [&](int lane) { return lane + static_cast<int>(delta); });
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  return tessera::emulated::shuffle(value, width,
                                    [&](int lane) { return lane - static_cast<int>(delta); });
}
inline unsigned __ballot_sync(unsigned, int vote) {
  const auto& all = tessera::emulated::exchange_in_warp(vote != 0);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(all.lane[lane]) << lane;
  return bits;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) == ~0u; }
inline unsigned __activemask() { return ~0u; }

// Several streams may run at a time, so atomics are the host's.
template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "sums of atomics in floating point have no fixed order");
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (seen < value &&
         !__atomic_compare_exchange_n(at, &seen, value, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return seen;
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < seen &&
         !__atomic_compare_exchange_n(at, &seen, value, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return seen;
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __popcll(unsigned long long bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __clzll(long long bits) {
  return std::countl_zero(static_cast<unsigned long long>(bits));
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
