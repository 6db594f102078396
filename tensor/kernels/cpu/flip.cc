#include "tessera/tensor/kernels/flip.h"

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/traversal.h"

namespace tessera {

void FlipKernel::cpu(const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  Shape strides = a.x.strides;
  std::int64_t first = 0;
  for (int d = 0; d < strides.ndim(); ++d) {
    if (!a.reversed[static_cast<std::size_t>(d)]) continue;
    first += (a.x.shape[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const auto t = cpu::make_traversal(a.y.shape, strides, a.y.strides);
  cpu::with_bits(a.x.dtype, [&]<class B>() {
    const B* x = a.x.as<B>() + first;
    B* y = a.y.as<B>();
    cpu::parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      cpu::copy_run(x + offsets[0], steps[0], y + offsets[1], steps[1], count);
    });
  });
}

}  // namespace tessera
