#pragma once

/// Reading and checking indices.

#include <limits>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/indexing.h"

namespace tessera::cpu {

inline constexpr std::int64_t kIndexRun = 512;

/// n indices from `offset`, `step` apart.
inline void load_indices(const ConstView& index, std::int64_t offset, std::int64_t step,
                         std::int64_t n, std::int64_t* out) {
  load_run(index.dtype, advance(index.data, index.dtype, offset), step, n, out);
}
inline std::int64_t load_index(const ConstView& index, std::int64_t offset) {
  std::int64_t value;
  load_indices(index, offset, 1, 1, &value);
  return value;
}

/// body(begin, count, indices) for runs of the elements [begin, end) of `index`, in order.
template <class Body>
void for_indices(const ConstView& index, const Traversal<1>& t, std::int64_t begin,
                 std::int64_t end, const Body& body) {
  walk(t, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t count) {
    std::int64_t buffer[kIndexRun];
    for (std::int64_t at = 0; at < count; at += kIndexRun) {
      const std::int64_t n = std::min(kIndexRun, count - at);
      load_indices(index, offsets[0] + at * steps[0], steps[0], n, buffer);
      body(begin, n, buffer);
      begin += n;
    }
  });
}

/// Call before the indices are used: reports the first index outside [0, extent). An index that a
/// stride of 0 repeats counts once.
inline void check_indices(ConstView index, std::int64_t extent, int dim, BadIndex bad_index) {
  for (int d = 0; d < index.shape.ndim(); ++d) {
    if (index.strides[d] == 0 && index.shape[d] > 1) index.shape[d] = 1;
  }
  const auto t = make_traversal(index.shape, index.strides);
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t total = index.numel(), pieces = (total + kPiece - 1) / kPiece;
  std::int64_t first = kNone;
#pragma omp parallel for schedule(static) reduction(min : first) if (pieces > 1)
  for (std::int64_t p = 0; p < pieces; ++p) {
    for_indices(index, t, p * kPiece, std::min(total, (p + 1) * kPiece),
                [&](std::int64_t begin, std::int64_t n, const std::int64_t* indices) {
                  for (std::int64_t i = 0; i < n; ++i) {
                    if (indices[i] < 0 || indices[i] >= extent) first = std::min(first, begin + i);
                  }
                });
  }
  if (first == kNone) return;
  for_indices(index, t, first, first + 1,
              [&](std::int64_t position, std::int64_t, const std::int64_t* indices) {
                bad_index(indices[0], position, extent, dim);
              });
}

}  // namespace tessera::cpu
