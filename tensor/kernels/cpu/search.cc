#include "tessera/tensor/kernels/search.h"

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/search_line.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void SearchSortedKernel::cpu(const Args& a, Workspace) {
  const int last = a.x.shape.ndim() - 1;
  const std::int64_t n = a.sorted.shape[last], step = a.sorted.strides[last];
  // All values of a line search the same sorted line.
  Shape lines = a.sorted.strides;
  lines[last] = 0;
  const auto values = cpu::make_traversal(a.x.shape, a.x.strides, a.y.strides, lines);
  std::int64_t* y = a.y.as<std::int64_t>();
  with_type(a.x.dtype, [&]<class T>() {
    const T* x = a.x.as<T>();
    const T* sorted = a.sorted.as<T>();
    cpu::parallel_walk(values, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = convert_element<Compared<T>>(x[offsets[0] + i * steps[0]]);
        y[offsets[1] + i * steps[1]] = search_line<T>(sorted + offsets[2], step, n, value, a.right);
      }
    });
  });
}

}  // namespace tessera
