#include "tessera/tensor/kernels/linear_index.h"

#include "tessera/tensor/kernels/cpu/indices.h"

namespace tessera {

void LinearIndexKernel::cpu(const Args& a, Workspace) {
  std::int64_t* y = a.y.as<std::int64_t>();
  for (int d = 0; d < a.extents.ndim(); ++d) {
    const ConstView& index = a.indices[static_cast<std::size_t>(d)];
    const std::int64_t extent = a.extents[d];
    cpu::check_indices(index, extent, d, a.bad_index);
    const auto t = cpu::make_traversal(index.shape, index.strides);
    cpu::parallel_pieces(index.numel(), [&](std::int64_t begin, std::int64_t end) {
      cpu::for_indices(index, t, begin, end,
                       [&](std::int64_t at, std::int64_t n, const std::int64_t* indices) {
                         for (std::int64_t i = 0; i < n; ++i) {
                           const std::int64_t before = d == 0 ? 0 : y[at + i];
                           y[at + i] = before * extent + indices[i];
                         }
                       });
    });
  }
}

}  // namespace tessera
