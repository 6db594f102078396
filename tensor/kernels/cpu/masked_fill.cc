#include "tessera/tensor/kernels/masked_fill.h"

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/traversal.h"

namespace tessera {

void MaskedFillKernel::cpu(const Args& a, Workspace) {
  const auto t = cpu::make_traversal(a.y.shape, a.x.strides, a.mask.strides, a.y.strides);
  const unsigned char* mask = a.mask.as<unsigned char>();
  cpu::with_bits(a.x.dtype, [&]<class B>() {
    const B* x = a.x.as<B>();
    B* y = a.y.as<B>();
    B value;
    cpu::store_run(a.x.dtype, &value, 1, 1, &a.value);
    cpu::parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      const B* from = x + offsets[0];
      const unsigned char* set = mask + offsets[1];
      B* to = y + offsets[2];
      for (std::int64_t i = 0; i < count; ++i)
        to[i * steps[2]] = set[i * steps[1]] != 0 ? value : from[i * steps[0]];
    });
  });
}

}  // namespace tessera
