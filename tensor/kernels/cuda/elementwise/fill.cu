#include "tessera/tensor/kernels/fill.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

struct Arange {
  void* y;
  DType dtype;
  std::int64_t n;
  double first;
  double step;
  double last;
  std::int64_t mirror;
};

__global__ void __launch_bounds__(cuda::kThreads) arange_kernel(const Arange a) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), a.n, [&](std::int64_t i) {
    const double value = i < a.mirror
                             ? scalar::fma(a.step, static_cast<double>(i), a.first)
                             : scalar::fma(-a.step, static_cast<double>(a.n - 1 - i), a.last);
    cuda::store_element(a.y, a.dtype, i, value);
  });
}

}  // namespace

void ArangeKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t n = a.y.shape[0];
  if (n == 0) return;
  const Arange arange = {.y = a.y.data,
                         .dtype = a.y.dtype,
                         .n = n,
                         .first = a.first,
                         .step = a.step,
                         .last = a.last,
                         .mirror = a.mirror};
  cuda::start(kName, arange_kernel, cuda::grid_for(n), stream, arange);
}

namespace {

struct Fill {
  cuda::Runs<3> runs;  // x, mask, y
  const void* x;
  const void* mask;
  void* y;
};

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    masked_fill_kernel(const __grid_constant__ Fill fill, U value) {
  cuda::for_tiles(fill.runs, [&](const cuda::Part& part) {
    U values[8];
    std::uint8_t set[8];
    cuda::load_operand(fill.runs, 0, part, fill.x, values);
    cuda::load_operand(fill.runs, 1, part, fill.mask, set);
#pragma unroll
    for (int k = 0; k < 8; ++k) values[k] = set[k] != 0 ? value : values[k];
    cuda::store_operand(fill.runs, 2, part, fill.y, values);
  });
}

}  // namespace

void MaskedFillKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  const Fill fill = {
      .runs = cuda::plan_runs<3>(
          a.y.shape, {cuda::run_operand(a.x), cuda::run_operand(a.mask), cuda::run_operand(a.y)},
          8),
      .x = a.x.data,
      .mask = a.mask.data,
      .y = a.y.data};
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(kName, masked_fill_kernel<U>, cuda::grid_of(fill.runs), stream, fill,
                cuda::element_bits<U>(a.y.dtype, a.value));
  });
}

namespace {

struct MaskedScatter {
  cuda::Runs<4> runs;  // x, mask, places, y
  const void* x;
  const void* mask;
  const void* places;
  const void* source;
  std::int64_t n;  // elements of the source
  void* y;
};

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    masked_scatter_kernel(const __grid_constant__ MaskedScatter a) {
  const U* source = static_cast<const U*>(a.source);
  cuda::for_tiles(a.runs, [&](const cuda::Part& part) {
    U values[8];
    std::uint8_t set[8];
    std::int64_t places[8];
    cuda::load_operand(a.runs, 0, part, a.x, values);
    cuda::load_operand(a.runs, 1, part, a.mask, set);
    cuda::load_operand(a.runs, 2, part, a.places, places);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (set[k] != 0 && a.n > 0) values[k] = source[(places[k] < a.n ? places[k] : a.n) - 1];
    }
    cuda::store_operand(a.runs, 3, part, a.y, values);
  });
}

}  // namespace

void MaskedScatterKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  const MaskedScatter scatter = {
      .runs = cuda::plan_runs<4>(a.y.shape,
                                 {cuda::run_operand(a.x), cuda::run_operand(a.mask),
                                  cuda::run_operand(a.places), cuda::run_operand(a.y)},
                                 8),
      .x = a.x.data,
      .mask = a.mask.data,
      .places = a.places.data,
      .source = a.source.data,
      .n = a.source.shape[0],
      .y = a.y.data};
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(kName, masked_scatter_kernel<U>, cuda::grid_of(scatter.runs), stream, scatter);
  });
}

namespace {

struct Triangle {
  cuda::Runs<2> runs;  // x, y
  const void* x;
  void* y;
  cuda::Divisor<std::uint64_t> rows;
  cuda::Divisor<std::uint64_t> columns;
  std::int64_t diagonal;
  bool upper;
};

// Whether an element, given its row-major number, is kept.
__device__ __forceinline__ bool stays(const Triangle& t, std::int64_t element) {
  const auto i = static_cast<std::uint64_t>(element);
  const std::uint64_t line = cuda::quotient(i, t.columns),
                      row = line - cuda::quotient(line, t.rows) * t.rows.value;
  const auto distance = static_cast<std::int64_t>(i - line * t.columns.value - row);  // j - i
  return t.upper ? distance >= t.diagonal : distance <= t.diagonal;
}

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    triangle_kernel(const __grid_constant__ Triangle t) {
  cuda::for_tiles(t.runs, [&](const cuda::Part& part) {
    U values[8];
    cuda::load_operand(t.runs, 0, part, t.x, values);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (!stays(t, cuda::element_of(part, k))) values[k] = U{0};
    }
    cuda::store_operand(t.runs, 1, part, t.y, values);
  });
}

}  // namespace

void TriangleKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  const int ndim = a.y.shape.ndim();
  const Triangle t = {
      .runs = cuda::plan_runs<2>(a.y.shape, {cuda::run_operand(a.x), cuda::run_operand(a.y)}, 8),
      .x = a.x.data,
      .y = a.y.data,
      .rows = cuda::make_divisor(static_cast<std::uint64_t>(a.y.shape[ndim - 2])),
      .columns = cuda::make_divisor(static_cast<std::uint64_t>(a.y.shape[ndim - 1])),
      .diagonal = a.diagonal,
      .upper = a.upper};
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(kName, triangle_kernel<U>, cuda::grid_of(t.runs), stream, t);
  });
}

namespace {

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    flip_kernel(const __grid_constant__ cuda::Runs<2> runs, const void* x, void* y) {
  cuda::for_tiles(runs, [&](const cuda::Part& part) {
    U values[8];
    cuda::load_operand(runs, 0, part, x, values);
    cuda::store_operand(runs, 1, part, y, values);
  });
}

// x from its last elements on, with negative strides.
ConstView reversed(const FlipKernel::Args& a) {
  ConstView x = a.x;
  std::int64_t first = 0;
  for (int d = 0; d < x.shape.ndim(); ++d) {
    if (!a.reversed[static_cast<std::size_t>(d)]) continue;
    first += (x.shape[d] - 1) * x.strides[d];
    x.strides[d] = -x.strides[d];
  }
  x.data = a.x.as<std::byte>() + first * static_cast<std::int64_t>(dtype_size(x.dtype));
  return x;
}

}  // namespace

void FlipKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  const ConstView x = reversed(a);
  const auto runs =
      cuda::plan_runs<2>(a.y.shape, {cuda::run_operand(x), cuda::run_operand(a.y)}, 8);
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(kName, flip_kernel<U>, cuda::grid_of(runs), stream, runs, x.data, a.y.data);
  });
}

}  // namespace tessera
