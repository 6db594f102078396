#include "tessera/tensor/kernels/elementwise.h"

#include <cuda_runtime.h>

#include <optional>
#include <type_traits>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cat.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed.h"
#include "tessera/tensor/kernels/cuda/elementwise/transposed.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

using cuda::kTileSide;

template <class C>
struct Factors {
  C alpha;
  C beta;
  bool adds;    // beta is not 0: y is read
  bool scales;  // alpha is not 1
};

// Integers wrap around.
template <class C>
__device__ __forceinline__ C product(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return scalar::mul(a, b);
  }
}
template <class C>
__device__ __forceinline__ C sum(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

// x = alpha * x + beta * before; as on the CPU, a plain copy has no multiplication.
template <class C, int K>
__device__ __forceinline__ void combine(const Factors<C>& by, C (&x)[K], const C (&before)[K]) {
  if (by.adds) {
#pragma unroll
    for (int k = 0; k < K; ++k) x[k] = sum(product(by.alpha, x[k]), product(by.beta, before[k]));
  } else if (by.scales) {
#pragma unroll
    for (int k = 0; k < K; ++k) x[k] = product(by.alpha, x[k]);
  }
}

template <class C>
__global__ void __launch_bounds__(cuda::kThreads, cuda::kBlocksEach<C>)
    axpby_kernel(const __grid_constant__ cuda::MapWork<C, 2> work, Factors<C> by) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    C in[2][cuda::kGroup<C>];
    cuda::load_inputs(work, part, in);
    combine(by, in[0], in[1]);
    cuda::store_result(work, part, in[0]);
  });
}

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    fill_kernel(const __grid_constant__ cuda::Runs<1> runs, void* y, U value) {
  cuda::for_tiles(runs, [&](const cuda::Part& part) {
    const U values[8] = {value, value, value, value, value, value, value, value};
    cuda::store_operand(runs, 0, part, y, values);
  });
}

// ---- transposes --------------------------------------------------------------------------------

template <class C>
struct TransposedWork {
  cuda::Transposed copy;
  const void* x;
  DType x_dtype;
  void* y;
  DType y_dtype;
  Factors<C> by;
};

constexpr int kLines = cuda::kThreads / kTileSide;  // rows of a tile that a block reads at a time
constexpr int kEach = kTileSide / kLines;

// values[s] = the element at `along` + (line + s kLines) step of data; C{0} after the end of the
// tile.
template <class C>
__device__ __forceinline__ void load_lines(const void* data, DType dtype, std::int64_t first,
                                           std::int64_t step, int lines, C (&values)[kEach]) {
  with_type(dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(data) + first;
    T loaded[kEach];
#pragma unroll
    for (int s = 0; s < kEach; ++s) loaded[s] = s * kLines < lines ? from[s * kLines * step] : T{};
#pragma unroll
    for (int s = 0; s < kEach; ++s) values[s] = convert_element<C>(loaded[s]);
  });
}

template <class C>
__device__ __forceinline__ void store_lines(void* data, DType dtype, std::int64_t first,
                                            std::int64_t step, int lines,
                                            const C (&values)[kEach]) {
  with_type(dtype, [&]<class T>() {
    T* to = static_cast<T*>(data) + first;
#pragma unroll
    for (int s = 0; s < kEach; ++s) {
      if (s * kLines < lines) to[s * kLines * step] = convert_element<T>(values[s]);
    }
  });
}

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    transposed_kernel(const __grid_constant__ TransposedWork<C> work) {
  __shared__ C tile[kTileSide][kTileSide + 1];  // one more column, to avoid bank conflicts
  const int along = static_cast<int>(threadIdx.x) % kTileSide,
            line = static_cast<int>(threadIdx.x) / kTileSide;
  const cuda::Transposed& copy = work.copy;
  for (std::int64_t t = blockIdx.x; t < copy.tiles; t += gridDim.x) {
    const cuda::TilePlace place = cuda::place_of_tile(copy, t);
    const int rows = static_cast<int>(place.rows), columns = static_cast<int>(place.columns);
    C values[kEach];
    if (along < rows)
      load_lines(work.x, work.x_dtype, place.x + along + line * copy.x_step, copy.x_step,
                 columns - line, values);
    else
      for (C& value : values) value = C{0};
#pragma unroll
    for (int s = 0; s < kEach; ++s) tile[line + s * kLines][along] = values[s];
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kEach; ++s) values[s] = tile[along][line + s * kLines];
    __syncthreads();  // before the next tile
    if (along >= columns) continue;
    const std::int64_t first = place.y + along + line * copy.y_step;
    C before[kEach] = {};
    if (work.by.adds) load_lines(work.y, work.y_dtype, first, copy.y_step, rows - line, before);
    combine(work.by, values, before);
    store_lines(work.y, work.y_dtype, first, copy.y_step, rows - line, values);
  }
}

// ---- launches ----------------------------------------------------------------------------------

void fill(CudaStream stream, const AxpbyKernel::Args& a) {
  const auto runs = cuda::plan_runs<1>(a.y.shape, {cuda::run_operand(a.y)}, 8);
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(AxpbyKernel::kName, fill_kernel<U>, cuda::grid_of(runs), stream, runs, a.y.data,
                cuda::element_bits<U>(a.y.dtype, a.number));
  });
}

template <class C>
void launch(CudaStream stream, const AxpbyKernel::Args& a) {
  const Factors<C> by = {.alpha = static_cast<C>(a.alpha),
                         .beta = static_cast<C>(a.beta),
                         .adds = a.beta != 0,
                         .scales = a.alpha != 1};
  if (const auto copy = cuda::find_transposed(a.y.shape, a.x.strides, a.y.strides)) {
    const TransposedWork<C> work = {.copy = *copy,
                                    .x = a.x.data,
                                    .x_dtype = a.x.dtype,
                                    .y = a.y.data,
                                    .y_dtype = a.y.dtype,
                                    .by = by};
    const cuda::Grid grid = {
        .blocks = static_cast<unsigned>(std::min(copy->tiles, cuda::kMostBlocks)),
        .threads = cuda::kThreads};
    return cuda::start(AxpbyKernel::kName, transposed_kernel<C>, grid, stream, work);
  }
  // y is read only if it is used.
  const ConstView y = {.data = a.y.data,
                       .dtype = a.y.dtype,
                       .shape = a.y.shape,
                       .strides = a.y.strides,
                       .storage = a.y.storage};
  const auto work = cuda::map_work<C, 2>(a.y, {Operand(a.x), by.adds ? Operand(y) : Operand(0.0)});
  cuda::start(AxpbyKernel::kName, axpby_kernel<C>, cuda::grid_of(work.runs), stream, work, by);
}

// alpha * x, or alpha * x + beta * y, as combine() computes them.
struct Cast {
  __device__ float operator()(float x) const { return x; }
};
struct Scaled {
  float alpha;
  __device__ float operator()(float x) const { return scalar::mul(alpha, x); }
};
struct Added {
  float alpha, beta;
  __device__ float operator()(float x, float y) const {
    return scalar::mul(alpha, x) + scalar::mul(beta, y);
  }
};

// Calls body.template operator()<Y, X>() if one of y and x has 16 bits, and the other these or f32.
template <class Body>
bool with_short_types(DType y, DType x, const Body& body) {
  if (y == x) return cuda::with_16_bits(y, [&]<class T>() { body.template operator()<T, T>(); });
  if (y == DType::kF32)
    return cuda::with_16_bits(x, [&]<class X>() { body.template operator()<float, X>(); });
  if (x == DType::kF32)
    return cuda::with_16_bits(y, [&]<class Y>() { body.template operator()<Y, float>(); });
  return false;
}

// Returns false for launches that the general kernel takes.
bool try_packed(CudaStream stream, const AxpbyKernel::Args& a) {
  if (!cuda::is_packed(a.y, a.x)) return false;
  const auto alpha = static_cast<float>(a.alpha), beta = static_cast<float>(a.beta);
  ConstView before;
  before.data = a.y.data;
  return with_short_types(a.y.dtype, a.x.dtype, [&]<class Y, class X>() {
    constexpr const char* kName = AxpbyKernel::kName;
    if (a.beta != 0) {
      cuda::start_packed<Y, X, Y>(kName, stream, Added{alpha, beta}, a.y, a.x, before);
    } else if (a.alpha != 1) {
      cuda::start_packed<Y, X>(kName, stream, Scaled{alpha}, a.y, a.x);
    } else if constexpr (!std::is_same_v<Y, X>) {  // else it is a plain copy
      cuda::start_packed<Y, X>(kName, stream, Cast{}, a.y, a.x);
    }
  });
}

// A copy of bytes without conversion, which the copy engine can do.
bool is_plain_copy(const AxpbyKernel::Args& a) {
  return a.x.dtype == a.y.dtype && a.alpha == 1 && a.beta == 0 &&
         is_contiguous(a.y.shape, a.y.strides) && is_contiguous(a.y.shape, a.x.strides);
}

}  // namespace

void AxpbyKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t n = a.y.numel();
  if (n == 0) return;
  if (!a.x.defined()) return fill(stream, a);
  if (is_plain_copy(a)) {
    const std::size_t bytes = static_cast<std::size_t>(n) * dtype_size(a.y.dtype);
    cuda::check_cuda(cudaMemcpyAsync(a.y.data, a.x.data, bytes, cudaMemcpyDeviceToDevice, stream),
                     kName, "cudaMemcpyAsync");
    return;
  }
  if (try_packed(stream, a)) return;
  with_compute_type(axpby_compute(a), [&]<class C>() { launch<C>(stream, a); });
}

void CatKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  std::int64_t start = 0;
  for (const ConstView& part : a.parts) {
    View y = a.y;
    y.data =
        static_cast<std::byte*>(y.data) + static_cast<std::size_t>(start) * dtype_size(y.dtype);
    y.shape = part.shape;
    AxpbyKernel::cuda(stream, {.x = part, .y = y}, {});
    start += part.shape[1];
  }
}

}  // namespace tessera
