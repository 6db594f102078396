#include "tessera/tensor/kernels/linear_index.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/index_faults.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"

namespace tessera {
namespace {

struct Indices {
  // The offsets of the indices of each dim, followed by their positions for BadIndex.
  cuda::Walk<2 * kMaxDims> walk;
  const void* data[kMaxDims];
  DType dtypes[kMaxDims];
  std::int64_t extents[kMaxDims];
  int count;
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
      if (index < 0 || index >= a.extents[d]) {
        cuda::report_fault(faults, index, cuda::offset_at(a.walk, kMaxDims + d, i), a.extents[d],
                           d);
        index = 0;  // keeps the result inside
      }
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
