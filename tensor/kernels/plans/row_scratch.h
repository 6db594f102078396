#pragma once

/// Scratch memory of kernels that work row by row or tile by tile.

#include <cstddef>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

// Scratch memory of kernels that work row by row: if a row cannot be used in place,
// each thread needs room for a converted copy.

/// True if rows along the last dim can be used in place: contiguous elements of a compute type.
template <class AnyView>
bool rows_in_place(const AnyView& view) {
  const int last = view.shape.ndim() - 1;
  return view.dtype == compute_dtype(view.dtype) &&
         (last < 0 || view.shape[last] <= 1 || view.strides[last] == 1);
}

/// The number of rows of `length` that one thread takes at a time; fewer are not worth waking it.
inline std::int64_t rows_per_turn(std::int64_t length) {
  constexpr std::int64_t kElements = 1 << 15;
  return length >= kElements ? 1 : length < 1 ? kElements : kElements / length;
}

/// `bytes`, rounded up to a cache line, for each thread that takes part in `rows` rows of `length`.
/// Also depends on the rank's thread budget.
std::size_t row_scratch(std::int64_t rows, std::int64_t length, std::size_t bytes);

/// The number of rows taken together if the rows, but not their elements, are adjacent in memory,
/// so that whole cache lines are used.
inline constexpr std::int64_t kRowTile = 16;
/// Elements of a buffer for one row of `length`, or for a tile of rows; the pitch is not a power of
/// 2.
inline std::int64_t row_pitch(std::int64_t length) { return length + 16; }
inline std::int64_t row_buffer_length(const View& view) {
  const std::int64_t n = view.shape.back();
  return view.strides.back() == 1 || n <= 1 ? n : kRowTile * row_pitch(n);
}

/// One thread's part of the scratch of row_scratch().
inline std::size_t row_scratch_share(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Scratch of kernels that consist of tile products: attention and convolution.

/// `n` rounded up to whole cache lines of the narrowest compute type: the pitch of rows of scratch.
constexpr std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }

/// Bytes in which cpu::multiply packs its operands, for tiles of at most m x n with an inner extent
/// of at most k, computed in `compute`: in f32 at least MatmulKernel::panel_elements of every smaller tile.
constexpr std::size_t product_scratch(DType compute, std::int64_t m, std::int64_t n,
                                      std::int64_t k) {
  const std::int64_t elements = compute == DType::kF64 ? (m + n) * MatmulKernel::kEigenDepth + 8
                                                       : (m + n + 64) * (k + 16) + 4096;
  return (static_cast<std::size_t>(elements) * dtype_size(compute) + 63) / 64 * 64;
}

/// Scratch for `units` of work that need `share` bytes each (a multiple of 64): one share for each
/// thread of the issuing rank, but at most one per unit.
std::size_t units_workspace(std::int64_t units, std::size_t share);

}  // namespace tessera
