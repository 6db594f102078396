#pragma once

/// Walks strided tensors of one shape together, in pieces that are distributed over threads.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tessera/tensor/kernels/cpu/parallel.h"
#include "tessera/tensor/kernels/view.h"
#include "tessera/tensor/shape.h"

namespace tessera::cpu {

/// A shape and the strides of N operands.
template <std::size_t N>
struct Traversal {
  int ndim = 0;  ///< at least 1; the arrays below are set up to here
  std::array<std::int64_t, kMaxDims> shape;
  std::array<std::array<std::int64_t, kMaxDims>, N> strides;

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= shape[d];
    return n;
  }
};

/// From lists of extents and strides (Shape, span) of one length.
template <class Extents, class... Strides>
Traversal<sizeof...(Strides)> make_traversal(const Extents& shape, const Strides&... strides) {
  const int ndim = std::min(static_cast<int>(shape.end() - shape.begin()), kMaxDims);
  const auto fill = [ndim](const auto& from, std::array<std::int64_t, kMaxDims>& to) {
    for (int d = 0; d < ndim; ++d) to[d] = from.begin()[d];
  };
  Traversal<sizeof...(Strides)> t;
  t.ndim = std::max(ndim, 1);
  t.shape[0] = 1;
  fill(shape, t.shape);
  std::size_t operand = 0;
  ((t.strides[operand][0] = 0, fill(strides, t.strides[operand++])), ...);
  return t;
}

/// Elements [begin, end) in row-major order, as runs along the last dim: body(offsets, strides,
/// count), where offsets and strides hold one number per operand.
template <std::size_t N, class Body>
void walk(const Traversal<N>& t, std::int64_t begin, std::int64_t end, const Body& body) {
  const int last = t.ndim - 1;
  std::array<std::int64_t, kMaxDims> index{};
  for (std::int64_t d = last, rest = begin; d >= 0 && rest > 0; --d) {
    index[d] = rest % t.shape[d];
    rest /= t.shape[d];
  }
  std::array<std::int64_t, N> steps, offsets{};
  for (std::size_t i = 0; i < N; ++i) {
    steps[i] = t.strides[i][last];
    for (int d = 0; d <= last; ++d) offsets[i] += index[d] * t.strides[i][d];
  }
  std::int64_t first = index[last];  // where the run begins: 0 for all but the first one
  while (begin < end) {
    const std::int64_t count = std::min(t.shape[last] - first, end - begin);
    body(std::as_const(offsets), steps, count);
    begin += count;
    // The next line. Short lines are many, so its offsets come from those of this line.
    for (std::size_t i = 0; i < N; ++i) offsets[i] -= first * steps[i];
    first = 0;
    for (int d = last - 1; d >= 0; --d) {
      const bool carries = ++index[d] == t.shape[d];
      for (std::size_t i = 0; i < N; ++i)
        offsets[i] += t.strides[i][d] - (carries ? t.shape[d] * t.strides[i][d] : 0);
      if (!carries) break;
      index[d] = 0;
    }
  }
}

/// body(begin, end) for pieces of [0, total), distributed over threads.
template <class Body>
void parallel_pieces(std::int64_t total, const Body& body) {
  parallel_for((total + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    body(piece * kPiece, std::min(total, (piece + 1) * kPiece));
  });
}

/// All elements, as in walk(), distributed over threads.
template <std::size_t N, class Body>
void parallel_walk(const Traversal<N>& t, const Body& body) {
  parallel_pieces(t.numel(),
                  [&](std::int64_t begin, std::int64_t end) { walk(t, begin, end, body); });
}

/// body(row) for rows of `length` elements each, distributed over threads if there are many
/// elements.
template <class Body>
void parallel_rows(std::int64_t rows, std::int64_t length, const Body& body) {
  const std::int64_t group = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, length));
  parallel_for((rows + group - 1) / group, [&](std::int64_t turn) {
    for (std::int64_t row = turn * group; row < std::min(rows, (turn + 1) * group); ++row)
      body(row);
  });
}

// Walking a tensor line by line: a line holds the elements along the last dim.

/// The first `count` entries of a shape or of strides.
inline std::span<const std::int64_t> leading(const Shape& list, int count) {
  return {list.begin(), static_cast<std::size_t>(count)};
}

/// Calls body(offsets) for lines [begin, end), with the offset of a line's first element in each
/// operand.
template <std::size_t N, class Body>
void walk_lines(const Traversal<N>& lines, std::int64_t begin, std::int64_t end, const Body& body) {
  walk(lines, begin, end, [&](const auto& offsets, const auto& steps, std::int64_t count) {
    auto at = offsets;
    for (std::int64_t i = 0; i < count; ++i) {
      body(at);
      for (std::size_t operand = 0; operand < N; ++operand) at[operand] += steps[operand];
    }
  });
}

/// The same for all lines, of `length` elements each, distributed over threads.
template <std::size_t N, class Body>
void parallel_lines(const Traversal<N>& lines, std::int64_t length, const Body& body) {
  const std::int64_t total = lines.numel();
  const std::int64_t group = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, length));
  const std::int64_t groups = (total + group - 1) / group;
  parallel_for(groups, [&](std::int64_t g) {
    walk_lines(lines, g * group, std::min(total, (g + 1) * group), body);
  });
}

}  // namespace tessera::cpu
