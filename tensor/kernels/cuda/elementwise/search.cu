// One thread for each value; it searches as the CPU does.

#include "tessera/tensor/kernels/search.h"

#include <array>

#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/math/search_line.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

struct Search {
  cuda::Walk<3> walk;  // x, y, the sorted line
  const void* sorted;
  const void* x;
  std::int64_t* y;
  std::int64_t values, n, step;
  bool right;
};

template <class T>
__global__ void __launch_bounds__(cuda::kThreads)
    search_sorted_kernel(const __grid_constant__ Search s) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), s.values, [&](std::int64_t i) {
    const T* line = static_cast<const T*>(s.sorted) + cuda::offset_at(s.walk, 2, i);
    const T* x = static_cast<const T*>(s.x) + cuda::offset_at(s.walk, 0, i);
    s.y[cuda::offset_at(s.walk, 1, i)] =
        search_line<T>(line, s.step, s.n, convert_element<Compared<T>>(*x), s.right);
  });
}

}  // namespace

void SearchSortedKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.x.numel() == 0) return;
  const int last = a.x.shape.ndim() - 1;
  std::array<Shape, 3> strides = {a.x.strides, a.y.strides, a.sorted.strides};
  strides[2][last] = 0;
  const Search search = {.walk = cuda::make_walk(a.x.shape, strides),
                         .sorted = a.sorted.data,
                         .x = a.x.data,
                         .y = a.y.as<std::int64_t>(),
                         .values = a.x.numel(),
                         .n = a.sorted.shape[last],
                         .step = a.sorted.strides[last],
                         .right = a.right};
  with_type(a.x.dtype, [&]<class T>() {
    cuda::start(kName, search_sorted_kernel<T>, cuda::grid_for(search.values), stream, search);
  });
}

}  // namespace tessera
