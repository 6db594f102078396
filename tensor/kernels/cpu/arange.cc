#include "tessera/tensor/kernels/arange.h"

#include "tessera/tensor/kernels/types.h"

namespace tessera {

void ArangeKernel::cpu(const Args& a, Workspace) {
  with_type(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    for (std::int64_t i = 0; i < a.y.shape[0]; ++i) y[i] = static_cast<T>(i);
  });
}

}  // namespace tessera
