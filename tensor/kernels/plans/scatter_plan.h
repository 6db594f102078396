#pragma once

/// How a GPU scatters, from shapes alone.
///
/// Elements with one destination are in one line along the indexed dim. If lines are short, or
/// there are many lines with indices of their own, one thread walks each line in order. Otherwise
/// all indices are sorted by destination, stably, and one group of threads takes the elements of
/// one destination in that order. The result is deterministic and equal to the CPU's.

#include <bit>
#include <cstdint>

#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/plans/sort_plan.h"

namespace tessera {

struct ScatterPlan {
  /// Lines up to this length are walked.
  static constexpr std::int64_t kShort = 32;
  /// If there are this many lines with indices of their own, they are walked, whatever their
  /// length.
  static constexpr std::int64_t kManyLines = 1 << 14;

  std::int64_t count = 0;        ///< elements of a line
  std::int64_t index_lines = 1;  ///< lines with indices of their own
  std::int64_t keys = 0;         ///< number of destinations of all lines; a larger key: none
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
