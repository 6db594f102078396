#pragma once

/// How a reduction is split for a GPU. Pure functions, tested on the CPU.
///
/// The order is the one documented in kernels/reduce.h, so the bits are the CPU's. First, blocks of
/// 1,024 elements are folded. A block has 16 lanes, each a chain of up to 64 steps; a thread takes
/// one lane, or as many as a pack has elements. If the elements of a result are adjacent (rows), a
/// block of threads takes 64 blocks and folds those of one result into a group at once. If the
/// results are adjacent (columns), it takes one block of many results. Then one launch folds
/// groups, or blocks, 64 at a time, and their results again 64 at a time.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/kernels/cuda/reductions/row_plan.h"
#include "tessera/tensor/kernels/reduce.h"

namespace tessera::cuda {

struct ReducePlan {
  RowWalk kept;     ///< the results
  RowWalk reduced;  ///< the elements of one result
  std::int64_t outputs = 0;
  std::int64_t count = 0;   ///< elements of a result
  std::int64_t blocks = 1;  ///< of a result; an empty one for no elements
  bool columns = false;
  bool heavy = false;   ///< pow or exp of each element
  bool packed = false;  ///< 16 bytes at a time

  /// For rows: a block of threads takes `units` blocks, 2^group_bits of which are of one group.
  int units = 16;
  int group_bits = 0;
  /// For columns: number of threads in a row of a block, a power of 2.
  int side_bits = 1;

  /// Totals per result after the first launch.
  std::int64_t totals = 1;
};

/// Number of elements in a full pack.
inline int reduce_pack(DType dtype) { return 16 / static_cast<int>(dtype_size(dtype)); }

/// Whether packs can be read from every row or line of columns.
inline bool reduce_is_packed(const ReduceKernel::Args& a, const ReducePlan& plan) {
  if (!is_floating(a.x.dtype) || a.x.dtype == DType::kF64 || !is_pack_aligned(a.x.data))
    return false;
  const std::int64_t pack = reduce_pack(a.x.dtype);
  const RowWalk& inner = plan.columns ? plan.kept : plan.reduced;
  const RowWalk& outer = plan.columns ? plan.reduced : plan.kept;
  bool aligned = inner.ndim > 0 && inner.strides[inner.ndim - 1] == 1 &&
                 inner.extents[inner.ndim - 1] % pack == 0;
  for (int d = 0; d + 1 < inner.ndim; ++d) aligned = aligned && inner.strides[d] % pack == 0;
  for (int d = 0; d < outer.ndim; ++d) aligned = aligned && outer.strides[d] % pack == 0;
  return aligned && (plan.columns || inner.ndim == 1);
}

inline ReducePlan plan_reduce(const ReduceKernel::Args& a) {
  ReducePlan plan;
  plan.kept = make_row_walk(a.x.shape, a.x.strides, 0, a.kept_dims);
  plan.reduced = make_row_walk(a.x.shape, a.x.strides, a.kept_dims, a.x.shape.ndim());
  plan.outputs = a.outputs();
  plan.count = a.count();
  plan.blocks = std::max<std::int64_t>(1, a.blocks());
  // Operations with many instructions per element have only the kernel for arbitrary rows.
  plan.heavy = a.op == ReduceOp::kNormP || a.op == ReduceOp::kLogSumExp;
  plan.columns = !plan.heavy && plan.reduced.ndim == 1 && plan.reduced.strides[0] != 1 &&
                 plan.kept.ndim > 0 && plan.kept.strides[plan.kept.ndim - 1] == 1;
  plan.packed = !plan.heavy && reduce_is_packed(a, plan);
  if (plan.columns) {
    const std::int64_t packs = plan.outputs / (plan.packed ? reduce_pack(a.x.dtype) : 1);
    plan.totals = plan.blocks;
    while (plan.side_bits < 5 && (std::int64_t{1} << plan.side_bits) < packs) ++plan.side_bits;
    return plan;
  }
  plan.totals = (plan.blocks + ReduceKernel::kGroup - 1) / ReduceKernel::kGroup;
  while (plan.group_bits < 6 && (std::int64_t{1} << plan.group_bits) < plan.blocks)
    ++plan.group_bits;
  // With fewer blocks, one thread per lane keeps more of the GPU busy than packs do.
  const auto bytes = static_cast<std::int64_t>(dtype_size(a.x.dtype));
  plan.packed = plan.packed && plan.outputs * plan.blocks * bytes >= 32768;
  plan.units = plan.packed ? 64 : std::max(16, 1 << plan.group_bits);
  return plan;
}

/// Number of blocks of threads that fold rows.
inline std::int64_t reduce_row_tiles(const ReducePlan& plan) {
  const std::int64_t groups = plan.outputs * plan.totals;
  const std::int64_t per_tile = plan.units >> plan.group_bits;
  return (groups + per_tile - 1) / per_tile;
}

/// Folding totals 64 at a time, `levels` times; threadIdx.x counts results.
struct FoldPlan {
  unsigned side = 256;    ///< results of a block of threads
  unsigned groups = 1;    ///< groups of 64 totals that it folds for each result, 1 or 64
  std::int64_t left = 1;  ///< totals that remain
};
inline FoldPlan plan_fold(std::int64_t totals) {
  constexpr std::int64_t kGroup = ReduceKernel::kGroup;
  if (totals <= kGroup) return {};
  return {.side = 4,
          .groups = static_cast<unsigned>(kGroup),
          .left = (totals + kGroup * kGroup - 1) / (kGroup * kGroup)};
}

}  // namespace tessera::cuda
