#pragma once

/// How CUDA kernels that work row by row distribute rows, and the offsets of rows. A row is the
/// elements along the last dim. Pure functions, tested on the CPU.
///
/// The threads of a row, and the elements of each thread, depend on the row's length and dtype
/// alone: the bits of a row depend neither on other rows nor on its layout.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/plans/chunks.h"
#include "tessera/tensor/shape.h"

namespace tessera::cuda {

/// Some dims of a tensor, walked in row-major order.
struct RowWalk {
  int ndim = 0;
  std::int64_t extents[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};
};

/// Dims [begin, end). Adjacent dims are merged if their strides allow it.
inline RowWalk make_row_walk(const Shape& shape, const Shape& strides, int begin, int end) {
  RowWalk walk;
  for (int d = begin; d < end; ++d) {
    if (shape[d] == 1) continue;
    const int last = walk.ndim - 1;
    if (last >= 0 && walk.strides[last] == shape[d] * strides[d]) {
      walk.extents[last] *= shape[d];
      walk.strides[last] = strides[d];
    } else {
      walk.extents[walk.ndim] = shape[d];
      walk.strides[walk.ndim++] = strides[d];
    }
  }
  return walk;
}

/// The offset of the row, in elements. A single dim needs no division.
TESSERA_HD std::int64_t row_offset(const RowWalk& walk, std::int64_t row) {
  std::int64_t offset = 0;
  for (int d = walk.ndim - 1; d > 0; --d) {
    const std::int64_t outer = row / walk.extents[d];
    offset += (row - outer * walk.extents[d]) * walk.strides[d];
    row = outer;
  }
  return walk.ndim > 0 ? offset + row * walk.strides[0] : offset;
}

/// The rows of one tensor, in the form that a kernel takes.
struct RowOperand {
  void* data = nullptr;
  std::int64_t step = 1;  ///< distance between elements of a row
  bool packed = false;    ///< every row begins at a multiple of 16 bytes, its step is 1
  RowWalk walk;
};

template <class AnyView>
RowOperand row_operand(const AnyView& view) {
  RowOperand out;
  const int last = view.shape.ndim() - 1;
  out.data = const_cast<void*>(static_cast<const void*>(view.data));
  out.step = last < 0 || view.shape[last] <= 1 ? 1 : view.strides[last];
  out.walk = make_row_walk(view.shape, view.strides, 0, std::max(last, 0));
  const auto size = static_cast<std::int64_t>(dtype_size(view.dtype));
  out.packed = out.step == 1 && is_pack_aligned(view.data);
  for (int d = 0; d < out.walk.ndim; ++d)
    out.packed = out.packed && out.walk.strides[d] * size % 16 == 0;
  return out;
}

/// A thread's part of a row: packs lane, lane + lanes, ...
struct RowPlan {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::int64_t packs = 0;  ///< of a row, the last one possibly incomplete
  int lanes = 1;           ///< threads of a row, a power of 2
  int lane_bits = 0;       ///< log2(lanes)
  bool held = false;       ///< each thread can keep its packs in registers

  /// Rows with at most a warp of threads share a block.
  int rows_per_block() const { return lanes <= 32 ? 128 / lanes : 1; }
  int threads() const { return lanes <= 32 ? 128 : lanes; }
  std::int64_t blocks() const { return (rows + rows_per_block() - 1) / rows_per_block(); }
};

struct RowPlanOptions {
  int pack = 1;           ///< elements per pack
  int held_packs = 1;     ///< packs that a thread can keep
  int wanted_packs = 1;   ///< packs per thread if there are enough threads
  int most_lanes = 1024;  ///< a power of 2
};
inline RowPlan plan_rows(std::int64_t rows, std::int64_t length, const RowPlanOptions& options) {
  RowPlan plan;
  plan.rows = rows;
  plan.length = length;
  plan.packs = (length + options.pack - 1) / options.pack;
  while (plan.lanes < options.most_lanes &&
         std::int64_t{plan.lanes} * options.wanted_packs < plan.packs) {
    plan.lanes *= 2;
    ++plan.lane_bits;
  }
  plan.held = plan.packs <= std::int64_t{plan.lanes} * options.held_packs;
  return plan;
}

/// How kernels that process lines in order distribute them on a GPU. Pure functions, tested on the
/// CPU; see kernels/plans/chunks.h.
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
