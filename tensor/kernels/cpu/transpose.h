#pragma once

/// Copies between two tensors that are contiguous along different dims.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tessera/tensor/kernels/cpu/traversal.h"

namespace tessera::cpu {

/// Of a traversal of a source and a destination: the dims along which they are contiguous.
struct ContiguousDims {
  int from = -1;
  int to = -1;

  /// Whether copying along either dim would jump in the other tensor, with enough elements along
  /// both that copying in tiles is faster.
  bool differ(const Traversal<2>& t) const {
    constexpr std::int64_t kLeast = 8;
    return from >= 0 && to >= 0 && from != to && t.shape[from] >= kLeast && t.shape[to] >= kLeast;
  }
};

inline ContiguousDims contiguous_dims(const Traversal<2>& t) {
  ContiguousDims dims;
  for (int d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 1) continue;
    if (t.strides[0][d] == 1) dims.from = d;
    if (t.strides[1][d] == 1) dims.to = d;
  }
  return dims;
}

/// The copy in tiles, each read by whole cache lines and written by four at a time. So no line is
/// needed twice, and rows a power of two apart, which share few sets of a cache, cost no more than
/// others.
template <class B>
class TransposedCopy {
 public:
  /// `t` has at least two dims, and contiguous_dims that differ.
  TransposedCopy(const Traversal<2>& t, const B* from, B* to)
      : from_(from), to_(to), outer_(t), dims_(contiguous_dims(t)) {
    length_ = t.shape[dims_.from];
    rows_ = t.shape[dims_.to];
    from_step_ = t.strides[0][dims_.to];
    to_step_ = t.strides[1][dims_.from];
    outer_.shape[dims_.from] = (length_ + kLine - 1) / kLine;
    outer_.shape[dims_.to] = (rows_ + kRows - 1) / kRows;
    // Tiles along the source's contiguous dim follow each other: its pages stay in use.
    const int last = outer_.ndim - 1;
    std::swap(outer_.shape[dims_.from], outer_.shape[last]);
    for (auto& strides : outer_.strides) std::swap(strides[dims_.from], strides[last]);
    if (dims_.to == last) dims_.to = dims_.from;
    dims_.from = last;
  }

  void run() const {
    const std::int64_t tiles = outer_.numel();
    constexpr std::int64_t kGroup = std::max<std::int64_t>(1, kPiece / (kLine * kRows));
    const std::int64_t groups = (tiles + kGroup - 1) / kGroup;
    parallel_for(groups, [&](std::int64_t g) {
      for (std::int64_t tile = g * kGroup; tile < std::min(tiles, (g + 1) * kGroup); ++tile)
        copy_tile(tile);
    });
  }

 private:
  static constexpr auto kBytes = static_cast<std::int64_t>(sizeof(B));
  static constexpr std::int64_t kLine = 64 / kBytes;   // elements
  static constexpr std::int64_t kRows = 256 / kBytes;  // of the source, elements of the destination

  void copy_tile(std::int64_t tile) const {
    const B* from = from_;
    B* to = to_;
    std::int64_t first = 0, row = 0;
    for (int d = outer_.ndim - 1; d >= 0; --d) {
      std::int64_t index = tile % outer_.shape[d];
      tile /= outer_.shape[d];
      if (d == dims_.from) index = first = index * kLine;
      if (d == dims_.to) index = row = index * kRows;
      from += index * outer_.strides[0][d];
      to += index * outer_.strides[1][d];
    }
    const std::int64_t length = std::min(kLine, length_ - first);
    const std::int64_t rows = std::min(kRows, rows_ - row);
    B turned[kLine][kRows];
    if (length == kLine) {
      for (std::int64_t r = 0; r < rows; ++r) {
        if (first + kLine < length_) __builtin_prefetch(from + r * from_step_ + kLine);
        for (std::int64_t i = 0; i < kLine; ++i) turned[i][r] = from[r * from_step_ + i];
      }
    } else {
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < length; ++i) turned[i][r] = from[r * from_step_ + i];
      }
    }
    for (std::int64_t i = 0; i < length; ++i)
      std::memcpy(to + i * to_step_, turned[i], static_cast<std::size_t>(rows * kBytes));
  }

  const B* from_;
  B* to_;
  Traversal<2> outer_;  // of tiles
  ContiguousDims dims_;
  std::int64_t length_ = 0, rows_ = 0;
  std::int64_t from_step_ = 0, to_step_ = 0;
};

}  // namespace tessera::cpu
