#pragma once

/// Walking a tensor line by line: a line holds the elements along the last dim.

#include <span>

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

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

/// The same for all lines, of `length` elements each, distributed over threads. `body` must not
/// throw.
template <std::size_t N, class Body>
void parallel_lines(const Traversal<N>& lines, std::int64_t length, const Body& body) {
  const std::int64_t total = lines.numel();
  const std::int64_t group = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, length));
  const std::int64_t groups = (total + group - 1) / group;
#pragma omp parallel for schedule(static) if (groups > 1)
  for (std::int64_t g = 0; g < groups; ++g)
    walk_lines(lines, g * group, std::min(total, (g + 1) * group), body);
}

}  // namespace tessera::cpu
