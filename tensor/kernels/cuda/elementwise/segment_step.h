#pragma once

/// How a block steps its part of a segment: elements of any floating dtype, kSegmentPack at a time
/// if tensors are aligned. For .cu files whose kernels take a SegmentList.

#include <cstring>

#include "tessera/tensor/kernels/cuda/elementwise/segment_list.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cuda {

/// body.template operator()<T>() for a floating dtype.
template <class Body>
__device__ inline void with_floating_element(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kBF16:
      return body.template operator()<BFloat16>();
    case DType::kF16:
      return body.template operator()<Float16>();
    default:
      return body.template operator()<float>();
  }
}

template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) SegmentPack {
  T values[N];
};

/// The bits of N elements whose dtype is computed in C and is not wider than C.
template <int N, class C>
struct SegmentBits {
  static constexpr int kWords = (N * static_cast<int>(sizeof(C)) + 3) / 4;
  alignas(N * sizeof(C) < 16 ? N * sizeof(C) : 16) std::uint32_t words[kWords];
};

/// Loads N elements of tensor `tensor` from `at` on. values_of() returns their values later: a
/// thread first issues all its loads, so that they overlap.
template <int N, class C, int M>
__device__ inline SegmentBits<N, C> load_segment(const SegmentTensors<M>& s, int tensor,
                                                 std::int64_t at) {
  SegmentBits<N, C> bits{};
  const auto load = [&]<class T>() {
    const auto pack =
        *reinterpret_cast<const SegmentPack<T, N>*>(static_cast<const T*>(s.data[tensor]) + at);
    std::memcpy(bits.words, &pack, sizeof(pack));
  };
  switch (dtype_size(s.dtypes[tensor])) {
    case 2:
      load.template operator()<std::uint16_t>();
      break;
    case 4:
      load.template operator()<std::uint32_t>();
      break;
    default:
      if constexpr (sizeof(C) == 8) load.template operator()<std::uint64_t>();
  }
  return bits;
}
template <int N, class C>
__device__ inline void values_of(const SegmentBits<N, C>& bits, DType dtype, C (&out)[N]) {
  with_floating_element(dtype, [&]<class T>() {
    SegmentPack<T, N> pack{};
    if constexpr (sizeof(T) <= sizeof(C)) {
      std::memcpy(&pack, bits.words, sizeof(pack));
    }
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = convert_element<C>(pack.values[i]);
  });
}

/// Stores values of C; afterwards `values` holds them as rounded in memory.
template <int N, class C, int M>
__device__ inline void store_segment(const SegmentTensors<M>& s, int tensor, std::int64_t at,
                                     C (&values)[N]) {
  with_floating_element(s.dtypes[tensor], [&]<class T>() {
    SegmentPack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      pack.values[i] = convert_element<T>(values[i]);
      values[i] = convert_element<C>(pack.values[i]);
    }
    *reinterpret_cast<SegmentPack<T, N>*>(static_cast<T*>(s.data[tensor]) + at) = pack;
  });
}

/// Calls step.template operator()<N>(at) for all elements of a part, N at a time from `at` on.
template <class Step>
__device__ inline void step_part(const SegmentPart& part, bool packs, const Step& step) {
  const std::int64_t single =
      packs ? part.begin + (part.end - part.begin) / kSegmentPack * kSegmentPack : part.begin;
  share(part.begin + kSegmentPack * threadIdx.x, kSegmentPack * blockDim.x, single,
        [&](std::int64_t at) { step.template operator()<kSegmentPack>(at); });
  share(single + threadIdx.x, blockDim.x, part.end,
        [&](std::int64_t at) { step.template operator()<1>(at); });
}

/// One launch for each list of the segments whose parameter is computed in C. `kernel` takes a
/// SegmentList<S>, where S is constructed from a segment, and the gradient scale on the device.
template <class C, class S, class Args>
void step_segments(const char* name, void (*kernel)(SegmentList<S>, const double*),
                   CudaStream stream, const Args& args) {
  const auto convert = [](const auto& segment, S* out) {
    if ((segment.parameter.dtype == DType::kF64) != (dtype_of<C> == DType::kF64)) return false;
    *out = S(segment);
    return true;
  };
  const auto* scale = static_cast<const double*>(args.gradient_scale.data);
  for_each_list<SegmentList<S>>(args.segments, convert, [&](const SegmentList<S>& list) {
    start(name, kernel, {.blocks = list.chunks(), .threads = kThreads}, stream, list, scale);
  });
}

}  // namespace tessera::cuda
