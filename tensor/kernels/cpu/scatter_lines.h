#pragma once

/// What scatters of all kinds share: the lines along the indexed dim, and the step of a fold.

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tessera/tensor/kernels/cpu/indices.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/indexing.h"

namespace tessera::cpu {

template <ScatterMode kMode, class T>
void put(T& to, const T& from) {
  if constexpr (kMode == ScatterMode::kAdd) {
    to = static_cast<T>(to + from);  // integers wrap around: -fwrapv
  } else if constexpr (kMode == ScatterMode::kMultiply) {
    to = static_cast<T>(to * from);
  } else if constexpr (kMode == ScatterMode::kMaximum) {
    to = from > to || from != from ? from : to;
  } else if constexpr (kMode == ScatterMode::kMinimum) {
    to = from < to || from != from ? from : to;
  } else {
    to = from;
  }
}

/// The dims of y, index and src other than the indexed one. Elements arrive at one destination in
/// the order of the indices along the indexed dim, and lines along it share no destination, so
/// pieces of the other dims are independent.
struct ScatterLines {
  explicit ScatterLines(const ScatterKernel::Args& a) : ScatterLines(a.walk) {
    piece = a.piece();
    pieces = a.pieces();
  }

  Traversal<3> others;  ///< strides of y, index, src
  std::int64_t count;   ///< indices of a line
  std::int64_t index_step;
  std::int64_t src_step;
  bool rows;               ///< neighbours share an index and lie closer than a line's elements
  bool one_index;          ///< all lines share their indices
  std::int64_t total;      ///< the number of lines
  std::int64_t piece = 0;  ///< lines that one thread takes at a time
  std::int64_t pieces = 0;

 private:
  explicit ScatterLines(const IndexedWalk& walk)
      : others(make_traversal(walk.shape, walk.indexed, walk.index, walk.other)),
        count(walk.count()),
        index_step(walk.index[walk.dim]),
        src_step(walk.other[walk.dim]) {
    const auto drop = [&](auto& list) {
      std::copy(list.begin() + walk.dim + 1, list.begin() + others.ndim, list.begin() + walk.dim);
    };
    drop(others.shape);
    for (auto& strides : others.strides) drop(strides);
    if (--others.ndim == 0) {  // one line of one element
      others.ndim = 1;
      others.shape[0] = 1;
      for (auto& strides : others.strides) strides[0] = 0;
    }
    const int last = others.ndim - 1;
    rows = others.strides[1][last] == 0 && others.shape[last] > 1 &&
           std::abs(others.strides[0][last]) <= std::abs(walk.stride);
    const auto& index = others.strides[1];
    one_index = std::all_of(index.begin(), index.begin() + others.ndim,
                            [](std::int64_t stride) { return stride == 0; });
    total = others.numel();
  }
};

}  // namespace tessera::cpu
