#pragma once

/// How CUDA kernels that work row by row share out rows, and where rows lie. A row is what lies
/// along the last dim. Pure functions, tested on the CPU.
///
/// The threads of a row, and which elements each of them has, follow from the row's length and
/// dtype alone: so the bits of a row depend neither on other rows nor on how it lies in memory.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/cuda/elementwise/pack.h"
#include "tessera/tensor/shape.h"

namespace tessera::cuda {

/// Some dims of a tensor, counted in row-major order.
struct RowWalk {
  int ndim = 0;
  std::int64_t extents[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};
};

/// Dims [begin, end). Neighbours that are walked as one are merged.
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

/// Where the row begins, in elements. One dim costs no division.
TESSERA_HD std::int64_t row_offset(const RowWalk& walk, std::int64_t row) {
  std::int64_t offset = 0;
  for (int d = walk.ndim - 1; d > 0; --d) {
    const std::int64_t outer = row / walk.extents[d];
    offset += (row - outer * walk.extents[d]) * walk.strides[d];
    row = outer;
  }
  return walk.ndim > 0 ? offset + row * walk.strides[0] : offset;
}

/// The rows of one tensor, as a kernel takes them.
struct RowOperand {
  void* data = nullptr;
  std::int64_t step = 1;  ///< from one element of a row to the next
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

/// What a thread has of a row: packs lane, lane + lanes, ...
struct RowPlan {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::int64_t packs = 0;  ///< of a row, the last of them maybe incomplete
  int lanes = 1;           ///< threads of a row, a power of 2
  int lane_bits = 0;       ///< its logarithm
  bool held = false;       ///< no thread has more packs than it can keep in registers

  /// Rows of at most a warp share a block.
  int rows_per_block() const { return lanes <= 32 ? 128 / lanes : 1; }
  int threads() const { return lanes <= 32 ? 128 : lanes; }
  std::int64_t blocks() const { return (rows + rows_per_block() - 1) / rows_per_block(); }
};

struct RowPlanOptions {
  int pack = 1;           ///< elements of one
  int held_packs = 1;     ///< that a thread can keep
  int wanted_packs = 1;   ///< that it has where there are threads enough
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

}  // namespace tessera::cuda
