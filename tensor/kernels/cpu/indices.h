#pragma once

/// Reading and checking indices.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

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

/// An index that was checked, counted from the front.
inline std::int64_t from_front(std::int64_t index, std::int64_t extent) {
  return index < 0 ? index + extent : index;
}
/// The same for n of them; a loop of its own, so that operations without negative indices do not
/// compare.
inline void count_from_front(const IndexedWalk& walk, std::int64_t n, std::int64_t* indices) {
  if (walk.least == 0) return;
  for (std::int64_t i = 0; i < n; ++i) indices[i] = from_front(indices[i], walk.extent);
}
/// n indices counted from the front: in place where they lie so, else in `buffer`.
inline const std::int64_t* read_indices(const ConstView& index, std::int64_t offset,
                                        std::int64_t step, std::int64_t n, const IndexedWalk& walk,
                                        std::int64_t* buffer) {
  if (walk.least == 0 && step == 1 && index.dtype == DType::kI64)
    return index.as<std::int64_t>() + offset;
  load_indices(index, offset, step, n, buffer);
  count_from_front(walk, n, buffer);
  return buffer;
}
inline std::int64_t load_from_front(const ConstView& index, std::int64_t offset,
                                    const IndexedWalk& walk) {
  const std::int64_t value = index.dtype == DType::kI64 ? index.as<std::int64_t>()[offset]
                                                        : index.as<std::int32_t>()[offset];
  return walk.least == 0 ? value : from_front(value, walk.extent);
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

/// The indices that check_indices accepts: [least, extent).
struct IndexRange {
  std::int64_t extent = 0;
  std::int64_t least = 0;

  bool contains(std::int64_t index) const {
    return static_cast<std::uint64_t>(index - least) < static_cast<std::uint64_t>(extent - least);
  }
  bool contains_all(const std::int64_t* indices, std::int64_t n) const {
    // Without branches, so that the compiler vectorises it. An index outside makes one of the differences negative, also
    // where it overflows; an index inside does not, because the range is shorter than 2^63.
    const auto first = static_cast<std::uint64_t>(least),
               last = static_cast<std::uint64_t>(extent - 1);
    std::uint64_t outside = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto index = static_cast<std::uint64_t>(indices[i]);
      outside |= (index - first) | (last - index);
    }
    return outside >> 63 == 0;
  }
};

/// Call before the indices are used: reports the first index outside the range. An index that a
/// stride of 0 repeats counts once.
inline void check_indices(const ConstView& index, const IndexRange& range, int dim,
                          BadIndex bad_index) {
  // Without dims of one index, so that runs are long.
  std::array<std::int64_t, kMaxDims> extents, strides;
  std::size_t ndim = 0;
  for (int d = 0; d < index.shape.ndim(); ++d) {
    if (index.shape[d] == 1 || (index.strides[d] == 0 && index.shape[d] > 1)) continue;
    extents[ndim] = index.shape[d];
    strides[ndim++] = index.strides[d];
  }
  const auto t = make_traversal(std::span(extents.data(), ndim), std::span(strides.data(), ndim));
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t total = t.numel(), pieces = (total + kPiece - 1) / kPiece;
  std::atomic<std::int64_t> lowest = kNone;
  parallel_for(pieces, [&](std::int64_t p) {
    std::int64_t first = kNone;
    for_indices(index, t, p * kPiece, std::min(total, (p + 1) * kPiece),
                [&](std::int64_t begin, std::int64_t n, const std::int64_t* indices) {
                  if (range.contains_all(indices, n)) return;
                  for (std::int64_t i = 0; i < n; ++i) {
                    if (!range.contains(indices[i])) first = std::min(first, begin + i);
                  }
                });
    std::int64_t before = lowest.load(std::memory_order_relaxed);
    while (first < before && !lowest.compare_exchange_weak(before, first)) {
    }
  });
  const std::int64_t first = lowest;
  if (first == kNone) return;
  for_indices(index, t, first, first + 1,
              [&](std::int64_t position, std::int64_t, const std::int64_t* indices) {
                bad_index(indices[0], position, range.extent, dim);
              });
}

}  // namespace tessera::cpu
