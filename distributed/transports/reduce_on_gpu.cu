#include "tessera/distributed/transports/reduce_on_gpu.h"

#include "tessera/distributed/transports/reduce_element.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/elementwise/walk.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::distributed {
namespace {

struct Sources {
  const void* data[kMostGpuSources];
  int count;
};

template <ReduceOp::Kind kind, class T>
__global__ void reduce_kernel(const __grid_constant__ Sources sources, ReduceTotal<T> factor,
                              T* out, std::int64_t n) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    out[i] = reduce_element<kind, T>(sources.data, sources.count, factor, i);
  });
}

}  // namespace

void reduce_on_gpu(CUstream_st* stream, DType dtype, const ReduceOp& op,
                   std::span<const void* const> sources, void* out, std::int64_t count) {
  if (count == 0) return;
  Sources all{};
  for (const void* source : sources) all.data[all.count++] = source;
  with_type(dtype, [&]<class T>() {
    with_reduce_kind<T>(op.kind, [&]<ReduceOp::Kind kind>() {
      cuda::start("reduce_on_gpu", reduce_kernel<kind, T>, cuda::grid_for(count), stream, all,
                  static_cast<ReduceTotal<T>>(op.factor), static_cast<T*>(out), count);
    });
  });
}

}  // namespace tessera::distributed
