#include "tessera/tensor/kernels/indexing.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/index_dims.h"
#include "tessera/tensor/kernels/cuda/elementwise/index_units.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"

namespace tessera {
namespace {

// The parameters of both kernels. Strides count units of the kernel's type.
struct Work {
  const void* x;
  cuda::IndexSource index;
  void* y;
  std::int64_t stride;
  cuda::IndexDims dims;
  cuda::FaultReporter faults;
  int dim;

  // Returns false, and reports a fault, for an index out of range.
  __device__ bool check(std::int64_t value, std::int64_t element) const {
    if (index.has(value)) return true;
    cuda::report_fault(faults, value, cuda::position_of(dims, element), index.extent, dim);
    return false;
  }
};

template <class U>
__global__ void elements_kernel(const __grid_constant__ Work work, std::int64_t n) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    const cuda::IndexPlace at = cuda::place_of(work.dims, i);
    const std::int64_t index = work.index.at(at.index);
    U value{};
    if (work.check(index, i))
      value =
          static_cast<const U*>(work.x)[at.indexed + work.index.from_front(index) * work.stride];
    static_cast<U*>(work.y)[at.other] = value;
  });
}

constexpr int kEach = 4;  // units of a row that a thread has in flight

// Rows of adjacent elements that share an index; dims has the dims before the row.
template <class U>
__global__ void rows_kernel(const __grid_constant__ Work work, std::int64_t rows,
                            std::int64_t units, const cuda::RowGroups groups) {
  const int lane = static_cast<int>(threadIdx.x) & (groups.lanes() - 1);
  cuda::share(cuda::thread_index() >> groups.lanes_log2, cuda::thread_count() >> groups.lanes_log2,
              rows * groups.slices, [&](std::int64_t task) {
                const std::int64_t row = groups.slices == 1 ? task : task / groups.slices;
                const std::int64_t slice = task - row * groups.slices;
                const std::int64_t first = slice * kEach * groups.lanes() + lane;
                const cuda::IndexPlace at = cuda::place_of(work.dims, row);
                const std::int64_t index = work.index.at(at.index);
                const bool good = work.check(index, row);
                const U* from = static_cast<const U*>(work.x) + at.indexed +
                                (good ? work.index.from_front(index) : 0) * work.stride;
                U* to = static_cast<U*>(work.y) + at.other;
                U values[kEach];
#pragma unroll
                for (int k = 0; k < kEach; ++k) {
                  const std::int64_t unit = first + k * groups.lanes();
                  values[k] = good && unit < units ? from[unit] : U{};
                }
#pragma unroll
                for (int k = 0; k < kEach; ++k) {
                  const std::int64_t unit = first + k * groups.lanes();
                  if (unit < units) to[unit] = values[k];
                }
              });
}

Work work_of(CudaStream stream, const GatherKernel::Args& a) {
  return {.x = a.x.data,
          .index = cuda::index_source(a.index, a.walk),
          .y = a.y.data,
          .stride = a.walk.stride,
          .dims = {},
          .faults = cuda::index_faults(stream, a.bad_index),
          .dim = a.walk.named_dim};
}

// Whether the last dim is a row: one index, adjacent elements in x and y.
bool has_rows(const IndexedWalk& walk) {
  const int last = walk.shape.ndim() - 1;
  return last != walk.dim && walk.shape[last] > 1 && walk.index[last] == 0 &&
         walk.indexed[last] == 1 && walk.other[last] == 1;
}

void gather_rows(CudaStream stream, const GatherKernel::Args& a) {
  const int last = a.walk.shape.ndim() - 1;
  const auto size = static_cast<std::int64_t>(dtype_size(a.x.dtype));
  Work work = work_of(stream, a);
  work.dims = cuda::index_dims(a.walk, [&](int d) { return d != last; });
  const int bytes =
      cuda::unit_bytes(cuda::address_bits(a.x.data) | cuda::address_bits(a.y.data) |
                       cuda::stride_bits(work.dims, size) |
                       static_cast<std::uint64_t>((a.walk.stride | a.walk.shape[last]) * size));
  work.dims.in_units(bytes / size);
  work.stride /= bytes / size;
  const std::int64_t units = a.walk.shape[last] * size / bytes, rows = work.dims.numel();
  const cuda::RowGroups groups = cuda::row_groups(units, kEach, cuda::kThreads / 2);
  cuda::with_unit(bytes, [&]<class U>() {
    cuda::start(GatherKernel::kName, rows_kernel<U>,
                cuda::grid_for(rows * groups.slices * groups.lanes()), stream, work, rows, units,
                groups);
  });
}

}  // namespace

void GatherKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t n = a.walk.shape.numel();
  if (n == 0) return;
  if (has_rows(a.walk)) return gather_rows(stream, a);
  Work work = work_of(stream, a);
  work.dims = cuda::index_dims(a.walk, [](int) { return true; });
  cuda::with_unit(static_cast<int>(dtype_size(a.x.dtype)), [&]<class U>() {
    if constexpr (sizeof(U) <= 8)
      cuda::start(kName, elements_kernel<U>, cuda::grid_for(n), stream, work, n);
  });
}

namespace {

struct Indices {
  // The offsets of the indices of each dim, followed by their positions for BadIndex.
  cuda::Walk<2 * kMaxDims> walk;
  const void* data[kMaxDims];
  DType dtypes[kMaxDims];
  std::int64_t extents[kMaxDims];
  int count;
  int named_dim;
  std::int64_t* y;
  std::int64_t n;
};

__global__ void __launch_bounds__(cuda::kThreads)
    linear_index_kernel(const __grid_constant__ Indices a, const cuda::FaultReporter faults) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), a.n, [&](std::int64_t i) {
    std::int64_t place = 0;
    for (int d = 0; d < a.count; ++d) {
      const std::int64_t at = cuda::offset_at(a.walk, d, i);
      std::int64_t index = a.dtypes[d] == DType::kI32
                               ? std::int64_t{static_cast<const std::int32_t*>(a.data[d])[at]}
                               : static_cast<const std::int64_t*>(a.data[d])[at];
      if (index < -a.extents[d] || index >= a.extents[d]) {
        cuda::report_fault(faults, index, cuda::offset_at(a.walk, kMaxDims + d, i), a.extents[d],
                           a.named_dim + d);
        index = 0;  // keeps the result inside
      }
      if (index < 0) index += a.extents[d];
      place = place * a.extents[d] + index;
    }
    a.y[i] = place;
  });
}

// Strides that number the elements of a view; an element that a stride of 0 repeats counts once.
Shape counting_strides(const ConstView& view) {
  Shape counted = view.shape;
  for (int d = 0; d < counted.ndim(); ++d) {
    if (view.strides[d] == 0) counted[d] = 1;
  }
  Shape strides = contiguous_strides(counted);
  for (int d = 0; d < counted.ndim(); ++d) {
    if (counted[d] == 1) strides[d] = 0;
  }
  return strides;
}

}  // namespace

void LinearIndexKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  Indices indices = {};
  indices.n = a.y.numel();
  if (indices.n == 0) return;
  indices.count = a.extents.ndim();
  indices.named_dim = a.named_dim;
  indices.y = a.y.as<std::int64_t>();
  std::array<Shape, 2 * kMaxDims> strides;
  strides.fill(Shape::filled(a.y.shape.ndim(), 0));
  for (int d = 0; d < indices.count; ++d) {
    const auto at = static_cast<std::size_t>(d);
    const ConstView& index = a.indices[at];
    indices.data[d] = index.data;
    indices.dtypes[d] = index.dtype;
    indices.extents[d] = a.extents[d];
    strides[at] = index.strides;
    strides[kMaxDims + at] = counting_strides(index);
  }
  indices.walk = cuda::make_walk(a.y.shape, strides);
  cuda::start(kName, linear_index_kernel, cuda::grid_for(indices.n), stream, indices,
              cuda::index_faults(stream, a.bad_index));
}

}  // namespace tessera
