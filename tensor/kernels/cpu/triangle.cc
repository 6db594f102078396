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
        // Elements before the edge are on one side of the diagonal.
        const std::int64_t first = at % columns - at / columns % rows;  // j - i
        const std::int64_t edge =
            std::clamp<std::int64_t>(a.diagonal - first + (a.upper ? 0 : 1), 0, count);
        const std::int64_t begin_kept = a.upper ? edge : 0, end_kept = a.upper ? count : edge;
        B* to = y + offsets[1];
        for (std::int64_t i = 0; i < begin_kept; ++i) to[i * steps[1]] = B{};
        cpu::copy_run(x + offsets[0] + begin_kept * steps[0], steps[0], to + begin_kept * steps[1],
                      steps[1], end_kept - begin_kept);
        for (std::int64_t i = end_kept; i < count; ++i) to[i * steps[1]] = B{};
        at += count;
      });
    });
  });
}

}  // namespace tessera
