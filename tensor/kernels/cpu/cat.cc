#include "tessera/tensor/kernels/cat.h"

#include <cstdint>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/traversal.h"

namespace tessera {

// Row by row: each line of y is written in order, and a part that occurs twice is read once.
void CatKernel::cpu(const Args& a, Workspace) {
  cpu::with_bits(a.y.dtype, [&]<class B>() {
    cpu::parallel_rows(a.y.shape[0], a.y.shape[1], [&](std::int64_t row) {
      B* to = a.y.as<B>() + row * a.y.strides[0];
      for (const ConstView& part : a.parts) {
        const std::int64_t columns = part.shape[1];
        cpu::copy_run(part.as<B>() + row * part.strides[0], 1, to, 1, columns);
        to += columns;
      }
    });
  });
}

}  // namespace tessera
