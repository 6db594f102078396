#pragma once

/// Elementwise kernels of contiguous operands of 16 bits, f32 or bool. Functor and dtypes are template
/// parameters, and a thread reads all its elements, in accesses of up to 16 bytes, before it converts any;
/// all other launches go through map.h. For .cu files.
///
/// A functor may have an `easy` path, with `is_easy(x...)` to tell for which numbers it may be taken,
/// beside the call operator, which takes any. A thread takes it if all elements of a run
/// allow it: the code of the difficult numbers is there once, not for each element. The result for an
/// element does not depend on its neighbours, because the call operator decides in the same way.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cuda {

/// Elements of a run: 4 if all operands are f32, else 8, which are two accesses of an f32 operand.
template <class... T>
inline constexpr int kPackedRun = ((sizeof(T) < 4) || ...) ? 8 : 4;

/// Functors with an easy path.
template <class F, class... X>
concept HasEasyPath = requires(const F& f, X... x) {
  f.is_easy(x...);
  f.easy(x...);
};

template <int N>
struct PackedWork {
  const void* in[N];
  void* y = nullptr;
  std::int64_t numel = 0;
};

/// Whether operands of y's shape are contiguous and begin at multiples of 16 bytes.
template <class... Views>
bool is_packed(const View& y, const Views&... in) {
  const auto fits = [&](const auto& x) {
    return x.defined() && is_contiguous(y.shape, x.strides) && is_pack_aligned(x.data);
  };
  return fits(y) && (fits(in) && ...);
}

namespace detail {

/// Runs of a thread: a second one would double the code of difficult numbers.
template <class F, class... X>
constexpr int packed_each() {
  return HasEasyPath<F, decltype(convert_element<float>(X{}))...> ? 1 : 2;
}

/// A thread's elements of one operand.
template <class T, int R, int kEach>
struct Loaded {
  Run<T, R> runs[kEach];
};

template <class T, int R>
__device__ __forceinline__ void convert_run(const Run<T, R>& run, float (&out)[R]) {
#pragma unroll
  for (int k = 0; k < R; ++k) out[k] = convert_element<float>(run.values[k]);
}

/// first[k] = f(first[k], more[k]...)
template <class F, int R, class... More>
__device__ __forceinline__ void compute_run(const F& f, float (&first)[R], More&... more) {
  if constexpr (HasEasyPath<F, float, decltype(more[0] + 0.0f)...>) {
    bool easy = true;
#pragma unroll
    for (int k = 0; k < R; ++k) easy = easy & f.is_easy(first[k], more[k]...);
    if (easy) {
#pragma unroll
      for (int k = 0; k < R; ++k) first[k] = f.easy(first[k], more[k]...);
    } else {
#pragma unroll 1
      for (int k = 0; k < R; ++k) {
        rotate(first, f(first[0], more[0]...));
        (rotate(more, more[0]), ...);
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < R; ++k) first[k] = f(first[k], more[k]...);
  }
}

/// The runs first, first + kThreads, ... below `runs`, of which there is at least one. All loads are issued before any element
/// is used: in place of a missing run the first is read again, because a branch would come between.
template <class Y, int R, int kEach, class F, std::size_t... I, class... X>
__device__ __forceinline__ void map_runs(const PackedWork<sizeof...(X)>& work, const F& f,
                                         std::int64_t first, std::int64_t runs,
                                         std::index_sequence<I...>, Loaded<X, R, kEach>... loaded) {
  const auto run_of = [&](int e) { return first + e * kThreads; };
  const auto load = [&]<class T>(const void* data, Loaded<T, R, kEach>& to) {
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      to.runs[e] = static_cast<const Run<T, R>*>(data)[run_of(e) < runs ? run_of(e) : first];
  };
  (load(work.in[I], loaded), ...);
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (run_of(e) >= runs) continue;
    float in[sizeof...(X)][R];
    (convert_run(loaded.runs[e], in[I]), ...);
    compute_run(f, in[I]...);
    Run<Y, R> out;
#pragma unroll
    for (int k = 0; k < R; ++k) out.values[k] = convert_element<Y>(in[0][k]);
    static_cast<Run<Y, R>*>(work.y)[run_of(e)] = out;
  }
}

template <class Y, class... X, class F, std::size_t... I>
__device__ __forceinline__ void map_packed(const PackedWork<sizeof...(X)>& work, const F& f,
                                           std::index_sequence<I...>) {
  constexpr int R = kPackedRun<Y, X...>;
  const std::int64_t runs = work.numel / R;
  const std::int64_t first =
      std::int64_t{blockIdx.x} * (kThreads * packed_each<F, X...>()) + threadIdx.x;
  if (first < runs)
    map_runs<Y>(work, f, first, runs, std::index_sequence<I...>(),
                Loaded<X, R, packed_each<F, X...>()>()...);
  // The elements after the last run.
  const std::int64_t rest = runs * R + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && rest < work.numel) {
    static_cast<Y*>(work.y)[rest] =
        convert_element<Y>(f(convert_element<float>(static_cast<const X*>(work.in[I])[rest])...));
  }
}

}  // namespace detail

template <class Y, class F, class... X>
__global__ void __launch_bounds__(kThreads)
    packed_kernel(const __grid_constant__ PackedWork<sizeof...(X)> work, F f) {
  detail::map_packed<Y, X...>(work, f, std::make_index_sequence<sizeof...(X)>());
}

/// y = f(in...), for operands that are packed (is_packed) and have the dtypes X... and Y. Each thread
/// reads its elements before it writes them: y may be one of the inputs.
template <class Y, class... X, class F, class... Views>
void start_packed(const char* name, CudaStream stream, const F& f, const View& y,
                  const Views&... in) {
  const PackedWork<sizeof...(X)> work = {.in = {in.data...}, .y = y.data, .numel = y.numel()};
  const std::int64_t runs = pieces_of(work.numel, kPackedRun<Y, X...>);
  const auto blocks =
      static_cast<unsigned>(pieces_of(runs, kThreads * detail::packed_each<F, X...>()));
  start(name, packed_kernel<Y, F, X...>, {.blocks = blocks, .threads = kThreads}, stream, work, f);
}

/// body.template operator()<T>() for a 16-bit dtype; returns false for another.
template <class Body>
bool with_16_bits(DType dtype, const Body& body) {
  if (dtype == DType::kBF16) {
    body.template operator()<BFloat16>();
    return true;
  }
  if (dtype == DType::kF16) {
    body.template operator()<Float16>();
    return true;
  }
  return false;
}

/// The same for f32 too.
template <class Body>
bool with_packed_type(DType dtype, const Body& body) {
  if (dtype != DType::kF32) return with_16_bits(dtype, body);
  body.template operator()<float>();
  return true;
}

/// A functor of two numbers whose second is the same for all elements, and not in memory.
template <class F>
struct WithNumber {
  F f;
  float b;

  __device__ float operator()(float a) const { return f(a, b); }
  __device__ bool is_easy(float a) const requires HasEasyPath<F, float, float> {
    return f.is_easy(a, b);
  }
  __device__ float easy(float a) const requires HasEasyPath<F, float, float> {
    return f.easy(a, b);
  }
};

}  // namespace tessera::cuda
