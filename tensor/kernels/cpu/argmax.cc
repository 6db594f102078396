#include "tessera/tensor/kernels/argmax.h"

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <class T>
std::int64_t index_of_largest(const T* x, std::int64_t n) {
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return i;
    if (x[i] > x[best]) best = i;
  }
  return best;
}

}  // namespace

void ArgmaxKernel::cpu(const Args& a, Workspace) {
  with_type(a.x.dtype, [&]<class T>() {
    const T* x = a.x.as<T>();
    std::int64_t* y = a.y.as<std::int64_t>();
    const std::int64_t n = a.x.shape[1];
    cpu::parallel_rows(a.x.shape[0], n,
                       [=](std::int64_t row) { y[row] = index_of_largest(x + row * n, n); });
  });
}

}  // namespace tessera
