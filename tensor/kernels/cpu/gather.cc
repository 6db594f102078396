#include "tessera/tensor/kernels/indexing.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/bits.h"
#include "tessera/tensor/kernels/cpu/indices.h"
#include "tessera/tensor/kernels/cpu/traversal.h"

namespace tessera {
namespace {

// The bytes of a line if it is fetched before it is needed: if `count` indices choose a good part of its elements, in an order that
// the CPU cannot foresee. Otherwise 0.
template <class B>
std::int64_t fetched_bytes(const IndexedWalk& walk, std::int64_t count) {
  constexpr std::int64_t kMost = 1 << 14, kCacheLine = 64;
  const std::int64_t bytes = walk.extent * static_cast<std::int64_t>(sizeof(B));
  return walk.stride == 1 && bytes <= kMost && count * kCacheLine >= bytes ? bytes : 0;
}

// False if an index is out of range; y is then incomplete.
template <class B>
bool gather(const GatherKernel::Args& a) {
  const B* x = a.x.as<B>();
  B* y = a.y.as<B>();
  const std::int64_t stride = a.walk.stride;
  const cpu::IndexRange inside{.extent = a.walk.extent};
  std::atomic<bool> valid = true;
  const auto t = cpu::make_traversal(a.walk.shape, a.walk.indexed, a.walk.index, a.walk.other);
  const std::int64_t next_line = t.ndim < 2 ? 0 : t.strides[0][t.ndim - 2];
  cpu::parallel_walk(t, [&](const auto& offsets, const auto& steps, std::int64_t count) {
    if (steps[1] == 0) {  // one index for the run
      const std::int64_t index = cpu::load_from_front(a.index, offsets[1], a.walk);
      if (!inside.contains(index)) return valid.store(false, std::memory_order_relaxed);
      return cpu::copy_run(x + offsets[0] + index * stride, steps[0], y + offsets[2], steps[2],
                           count);
    }
    if (steps[0] == 0)
      cpu::prefetch(x, (offsets[0] + next_line) * static_cast<std::int64_t>(sizeof(B)),
                    fetched_bytes<B>(a.walk, count));
    std::int64_t buffer[cpu::kIndexRun];
    for (std::int64_t at = 0; at < count; at += cpu::kIndexRun) {
      const std::int64_t n = std::min(cpu::kIndexRun, count - at);
      const std::int64_t* indices =
          cpu::read_indices(a.index, offsets[1] + at * steps[1], steps[1], n, a.walk, buffer);
      if (!inside.contains_all(indices, n)) return valid.store(false, std::memory_order_relaxed);
      const B* from = x + offsets[0] + at * steps[0];
      B* to = y + offsets[2] + at * steps[2];
      if (steps[0] == 0 && steps[2] == 1 && stride == 1) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = from[indices[i]];
      } else {
        for (std::int64_t i = 0; i < n; ++i)
          to[i * steps[2]] = from[i * steps[0] + indices[i] * stride];
      }
    }
  });
  return valid;
}

}  // namespace

void GatherKernel::cpu(const Args& a, Workspace) {
  if (a.walk.shape.numel() == 0) return;
  // Indices are checked when they are used: a pass of its own would read them twice.
  bool valid = true;
  cpu::with_bits(a.x.dtype, [&]<class B>() { valid = gather<B>(a); });
  if (valid) return;
  cpu::check_indices(a.index, {.extent = a.walk.extent, .least = a.walk.least}, a.walk.named_dim,
                     a.bad_index);
}

void LinearIndexKernel::cpu(const Args& a, Workspace) {
  std::int64_t* y = a.y.as<std::int64_t>();
  for (int d = 0; d < a.extents.ndim(); ++d) {
    const ConstView& index = a.indices[static_cast<std::size_t>(d)];
    const std::int64_t extent = a.extents[d];
    cpu::check_indices(index, {.extent = extent, .least = -extent}, a.named_dim + d, a.bad_index);
    const auto t = cpu::make_traversal(index.shape, index.strides);
    cpu::parallel_pieces(index.numel(), [&](std::int64_t begin, std::int64_t end) {
      cpu::for_indices(index, t, begin, end,
                       [&](std::int64_t at, std::int64_t n, const std::int64_t* indices) {
                         for (std::int64_t i = 0; i < n; ++i) {
                           const std::int64_t before = d == 0 ? 0 : y[at + i];
                           y[at + i] = before * extent + cpu::from_front(indices[i], extent);
                         }
                       });
    });
  }
}

}  // namespace tessera
