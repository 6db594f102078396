#pragma once

/// How a GPU scatters, from shapes alone.
///
/// Elements that may have one destination are those of one line along the indexed dim. Where lines
/// are short, or there are enough of them with indices of their own, a thread walks each in order.
/// Else all indices are sorted, by destination and stably, and the elements of one destination are
/// taken in that order by one group of threads: so it is deterministic, and as on the CPU.

#include <bit>
#include <cstdint>

#include "tessera/tensor/kernels/plans/radix_plan.h"
#include "tessera/tensor/kernels/scatter.h"

namespace tessera {

struct ScatterPlan {
  /// Lines up to this long are walked.
  static constexpr std::int64_t kShort = 32;
  /// So many lines with indices of their own are walked however long they are.
  static constexpr std::int64_t kManyLines = 1 << 14;

  std::int64_t count = 0;        ///< elements of a line
  std::int64_t index_lines = 1;  ///< lines with indices of their own
  std::int64_t keys = 0;         ///< destinations of all of these; a key beyond: none
  bool sorted = false;

  std::int64_t items() const { return index_lines * count; }
  RadixPlan radix() const {
    return {.lines = 1,
            .length = items(),
            .passes = radix_passes(std::bit_width(static_cast<std::uint64_t>(keys)))};
  }
};

inline ScatterPlan scatter_plan(const IndexedWalk& walk) {
  ScatterPlan plan{.count = walk.shape[walk.dim]};
  if (walk.shape.numel() == 0) return plan;
  for (int d = 0; d < walk.shape.ndim(); ++d) {
    if (d != walk.dim && walk.index[d] != 0) plan.index_lines *= walk.shape[d];
  }
  if (plan.count <= ScatterPlan::kShort || plan.index_lines >= ScatterPlan::kManyLines) return plan;
  constexpr std::int64_t kMost = std::int64_t{1} << 32;  // keys and positions have 32 bits
  if (walk.extent >= kMost / plan.index_lines || plan.count >= kMost / plan.index_lines)
    return plan;
  plan.keys = plan.index_lines * walk.extent;
  plan.sorted = true;
  return plan;
}

}  // namespace tessera
