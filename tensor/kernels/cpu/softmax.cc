#include "tessera/tensor/kernels/softmax.h"

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <class T>
void softmax_row(const T* x, T* y, std::int64_t n) {
  const T largest = cpu::row_max(x, n);
  for (std::int64_t i = 0; i < n; ++i) y[i] = scalar::exp(x[i] - largest);
  const T total = cpu::lane_sum<T>(n, [=](std::int64_t i) { return y[i]; });
  for (std::int64_t i = 0; i < n; ++i) y[i] /= total;
}

}  // namespace

void SoftmaxKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.x.dtype, [&]<class T>() {
    const T* x = a.x.as<T>();
    T* y = a.y.as<T>();
    const std::int64_t n = a.x.shape[1];
    cpu::parallel_rows(a.x.shape[0], n,
                       [=](std::int64_t row) { softmax_row(x + row * n, y + row * n, n); });
  });
}

}  // namespace tessera
