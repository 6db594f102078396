#pragma once

/// Elementwise kernels: a thread reads its elements of a tile (see runs.h) from operands of any
/// dtype and layout, and writes the results. For .cu files.
///
///     for_tiles(work.runs, [&](const Part& part) {
///       C in[N][kGroup<C>];
///       load_inputs(work, part, in);
///       ...                                  // results into in[0]
///       store_result(work, part, in[0]);
///     });
///
/// Dtypes are branches that all threads of a launch take alike, so a kernel is compiled once for
/// each compute type. A thread reads all its inputs before it writes: the result may be one of
/// them.
/// one of them.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/cuda/elementwise/map_work.h"
#include "tessera/tensor/kernels/cuda/elementwise/runs.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cuda {

/// The minimum number of resident blocks per multiprocessor that keeps memory busy: it limits a
/// thread to 64 registers, or 128.
template <class C>
inline constexpr int kBlocksEach = sizeof(C) <= 4 ? 4 : 2;

/// Adjacent elements, read and written in accesses of up to 16 bytes.
template <class T, int kCount>
struct alignas(std::min<std::size_t>(16, sizeof(T) * kCount)) Run {
  T values[kCount];
};

template <int N>
Grid grid_of(const Runs<N>& runs) {
  return {.blocks = static_cast<unsigned>(std::min(runs.tiles, kMostBlocks)), .threads = kThreads};
}

/// Calls body(part) for each tile in which the thread has a part.
template <int N, class Body>
__device__ __forceinline__ void for_tiles(const Runs<N>& runs, Body body) {
  for (std::int64_t tile = blockIdx.x; tile < runs.tiles; tile += gridDim.x) {
    const Part part = part_of(runs, tile, static_cast<int>(threadIdx.x));
    if (!part.empty()) body(part);
  }
}

/// Shifts a group by one element; the last becomes `last`. (A run-time index would move the group
/// from registers to memory.)
template <class C, int G>
__device__ __forceinline__ void rotate(C (&group)[G], C last) {
#pragma unroll
  for (int k = 0; k + 1 < G; ++k) group[k] = group[k + 1];
  group[G - 1] = last;
}

/// The elements of a part, at the positions from find_part. `step` is the operand's step in runs.
template <class T, int G>
__device__ __forceinline__ void load_part(const T* data, const Part& part, int step,
                                          const Places& at, T (&values)[G]) {
  if (part.run == 1) {
#pragma unroll
    for (int k = 0; k < G; ++k) values[k] = data[at[k % kSingles]];
    return;
  }
  if (step == 0) {
#pragma unroll
    for (int k = 0; k < G; ++k) values[k] = data[at[k / 4]];
    return;
  }
  if constexpr (G == 8 && sizeof(T) <= 2) {
    if (part.run == 8) {
      const auto run = *reinterpret_cast<const Run<T, 8>*>(data + at[0]);
#pragma unroll
      for (int k = 0; k < G; ++k) values[k] = run.values[k];
      return;
    }
  }
  Run<T, 4> runs[G / 4];
#pragma unroll
  for (int r = 0; r < G / 4; ++r) runs[r] = *reinterpret_cast<const Run<T, 4>*>(data + at[r]);
#pragma unroll
  for (int k = 0; k < G; ++k) values[k] = runs[k / 4].values[k % 4];
}

template <class T, int G>
__device__ __forceinline__ void store_part(T* data, const Part& part, const Places& at,
                                           const T (&values)[G]) {
  if (part.run == 1) {
#pragma unroll
    for (int k = 0; k < kSingles; ++k) {
      if (part.has(k)) data[at[k]] = values[k];
    }
    return;
  }
  if constexpr (G == 8 && sizeof(T) <= 2) {
    if (part.run == 8) {
      Run<T, 8> run;
#pragma unroll
      for (int k = 0; k < G; ++k) run.values[k] = values[k];
      *reinterpret_cast<Run<T, 8>*>(data + at[0]) = run;
      return;
    }
  }
#pragma unroll
  for (int r = 0; r < G / 4; ++r) {
    Run<T, 4> run;
#pragma unroll
    for (int k = 0; k < 4; ++k) run.values[k] = values[4 * r + k];
    if (part.has(r)) *reinterpret_cast<Run<T, 4>*>(data + at[r]) = run;
  }
}

/// The same at an operand's own layout; for elements that are moved without conversion.
template <class T, int G, int N>
__device__ __forceinline__ void load_operand(const Runs<N>& runs, int operand, const Part& part,
                                             const void* data, T (&values)[G]) {
  Places at;
  find_part<G>(runs, operand, part, at);
  load_part(static_cast<const T*>(data), part, runs.steps[operand], at, values);
}
template <class T, int G, int N>
__device__ __forceinline__ void store_operand(const Runs<N>& runs, int operand, const Part& part,
                                              void* data, const T (&values)[G]) {
  Places at;
  find_part<G>(runs, operand, part, at);
  store_part(static_cast<T*>(data), part, at, values);
}

namespace detail {

/// The unconverted 16 or 32 bytes of an operand that lies in runs of 16.
template <int N>
__device__ __forceinline__ void load_words(const MapWork<float, N>& work, int o, const Part& part,
                                           float (&words)[8]) {
  Places at;
  find_part<8>(work.runs, o, part, at);
  const auto load = [&](std::int64_t first, int to) {
    const auto run = *reinterpret_cast<const Run<std::uint32_t, 4>*>(
        static_cast<const std::byte*>(work.data[o]) + first);
#pragma unroll
    for (int k = 0; k < 4; ++k) words[to + k] = std::bit_cast<float>(run.values[k]);
  };
  const std::int64_t bytes = 16 / part.run;  // of an element
  load(at[0] * bytes, 0);
  if (part.run == 4) load(at[1] * bytes, 4);
}

template <class T>
__device__ __forceinline__ void unpack_halves(float (&values)[8]) {
#pragma unroll
  for (int k = 7; k >= 0; --k) {
    const auto word = std::bit_cast<std::uint32_t>(values[k / 2]);
    values[k] =
        static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(word >> (16 * (k % 2)))));
  }
}

/// Words as numbers, in place.
__device__ __forceinline__ void unpack(DType dtype, float (&values)[8]) {
  if (dtype == DType::kBF16) return unpack_halves<BFloat16>(values);
  if (dtype == DType::kF16) return unpack_halves<Float16>(values);
  if (dtype != DType::kI32) return;
#pragma unroll
  for (int k = 0; k < 8; ++k)
    values[k] = static_cast<float>(std::bit_cast<std::int32_t>(values[k]));
}

template <class C, int N, int G>
__device__ __forceinline__ void load_input(const MapWork<C, N>& work, int o, const Part& part,
                                           C (&values)[G]) {
  if (work.data[o] == nullptr) {
#pragma unroll
    for (int k = 0; k < G; ++k) values[k] = work.numbers[o];
    return;
  }
  Places at;
  find_part<G>(work.runs, o, part, at);
  with_type(work.dtypes[o], [&]<class T>() {
    T loaded[G];
    load_part(static_cast<const T*>(work.data[o]), part, work.runs.steps[o], at, loaded);
#pragma unroll
    for (int k = 0; k < G; ++k) values[k] = convert_element<C>(loaded[k]);
  });
}

}  // namespace detail

/// Loads and converts all inputs. Loads of 16-byte runs are all issued before any is converted, so
/// that their latencies overlap.
template <class C, int N, int G>
__device__ __forceinline__ void load_inputs(const MapWork<C, N>& work, const Part& part,
                                            C (&in)[N][G]) {
  static_assert(G == kGroup<C>);
  if constexpr (G == 8) {
#pragma unroll
    for (int o = 0; o < N; ++o) {
      if (work.in_words[o] && !part.is_tail) detail::load_words(work, o, part, in[o]);
    }
  }
#pragma unroll
  for (int o = 0; o < N; ++o) {
    if (G == 8 && work.in_words[o] && !part.is_tail) {
      if constexpr (G == 8) detail::unpack(work.dtypes[o], in[o]);
    } else {
      detail::load_input(work, o, part, in[o]);
    }
  }
}

template <class C, int N, int G>
__device__ __forceinline__ void store_result(const MapWork<C, N>& work, const Part& part,
                                             const C (&values)[G]) {
  Places at;
  find_part<G>(work.runs, N, part, at);
  with_type(work.y_dtype, [&]<class T>() {
    T converted[G];
#pragma unroll
    for (int k = 0; k < G; ++k) converted[k] = convert_element<T>(values[k]);
    store_part(static_cast<T*>(work.y), part, at, converted);
  });
}

}  // namespace tessera::cuda
