#pragma once

/// Scratch memory of kernels that work row by row: where a row cannot be used as it lies in memory,
/// each thread needs room for a converted copy.

#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// True when rows along the last dim can be used where they are: elements of a type that is
/// computed with, next to each other.
template <class AnyView>
bool rows_in_place(const AnyView& view) {
  const int last = view.shape.ndim() - 1;
  return view.dtype == compute_dtype(view.dtype) &&
         (last < 0 || view.shape[last] <= 1 || view.strides[last] == 1);
}

/// Rows of `length` that one thread takes at a time: less is not worth waking it.
inline std::int64_t rows_per_turn(std::int64_t length) {
  constexpr std::int64_t kElements = 1 << 15;
  return length >= kElements ? 1 : length < 1 ? kElements : kElements / length;
}

/// `bytes`, rounded up to a cache line, for each thread that will share out `rows` rows of
/// `length`. Depends on the rank's thread budget too.
std::size_t row_scratch(std::int64_t rows, std::int64_t length, std::size_t bytes);

/// Rows that are taken together where their elements are not neighbours but they themselves are, so
/// that whole cache lines are used.
inline constexpr std::int64_t kRowTile = 16;
/// Elements of a buffer for one row of `length`, or for a tile of them; not a power of 2 apart.
inline std::int64_t row_pitch(std::int64_t length) { return length + 16; }
inline std::int64_t row_buffer_length(const View& view) {
  const std::int64_t n = view.shape.back();
  return view.strides.back() == 1 || n <= 1 ? n : kRowTile * row_pitch(n);
}

/// One thread's part of what row_scratch() asked for.
inline std::size_t row_scratch_share(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace tessera
