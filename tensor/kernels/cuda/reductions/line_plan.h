#pragma once

/// How kernels that process lines in order distribute them on a GPU. Pure functions, tested on the
/// CPU; see kernels/plans/line_chunks.h.

#include "tessera/tensor/kernels/cuda/reductions/row_plan.h"
#include "tessera/tensor/kernels/plans/line_chunks.h"

namespace tessera::cuda {

struct LinePlan {
  LineChunks cut;
  RowWalk x_lines;
  RowWalk y_lines;  ///< set by the kernel
  std::int64_t x_step = 1;
  int lanes = 1;  ///< threads of a chunk, a power of 2
  int lane_bits = 0;

  /// Threads of a block.
  int threads() const { return lanes <= 32 ? 128 : lanes; }
  std::int64_t blocks() const {
    const std::int64_t per_block = threads() >> lane_bits, all = cut.lines * cut.chunks;
    return (all + per_block - 1) / per_block;
  }
};

/// `items`: elements per thread, if chunks are long enough.
inline LinePlan plan_lines(const Shape& shape, const Shape& strides, int items) {
  LinePlan plan;
  plan.cut = line_chunks(shape, strides);
  const int last = shape.ndim() - 1;
  plan.x_lines = make_row_walk(shape, strides, 0, last);
  plan.x_step = strides[last];
  if (plan.cut.side_by_side) return plan;
  while (plan.lanes < 512 && std::int64_t{plan.lanes} * items < plan.cut.chunk) {
    plan.lanes *= 2;
    ++plan.lane_bits;
  }
  return plan;
}

}  // namespace tessera::cuda
