#include "tessera/tensor/kernels/triangle.h"

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/traversal.h"

namespace tessera {

void TriangleKernel::cpu(const Args& a, Workspace) {
  const int ndim = a.y.shape.ndim();
  const std::int64_t rows = a.y.shape[ndim - 2], columns = a.y.shape[ndim - 1];
  const auto t = cpu::make_traversal(a.y.shape, a.x.strides, a.y.strides);
  cpu::with_bits(a.x.dtype, [&]<class B>() {
    const B* x = a.x.as<B>();
    B* y = a.y.as<B>();
    cpu::parallel_pieces(t.numel(), [&](std::int64_t begin, std::int64_t end) {
      std::int64_t at = begin;
      cpu::walk(t, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t count) {
        const std::int64_t first = at % columns - at / columns % rows;  // j - i
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t from_diagonal = first + i;
          const bool stays = a.upper ? from_diagonal >= a.diagonal : from_diagonal <= a.diagonal;
          y[offsets[1] + i * steps[1]] = stays ? x[offsets[0] + i * steps[0]] : B{};
        }
        at += count;
      });
    });
  });
}

}  // namespace tessera
