#include "tessera/tensor/kernels/arange.h"

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void ArangeKernel::cpu(const Args& a, Workspace) {
  const std::int64_t n = a.y.shape[0];
  const double first = a.first, step = a.step, last = a.last;
  const std::int64_t mirror = a.mirror;
  with_type(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    cpu::parallel_pieces(n, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double value = i < mirror ? scalar::fma(step, static_cast<double>(i), first)
                                        : scalar::fma(-step, static_cast<double>(n - 1 - i), last);
        y[i] = convert_element<T>(value);
      }
    });
  });
}

}  // namespace tessera
