#pragma once

/// Elementwise work on a list of segments, each a few contiguous tensors of one length: for
/// optimizers.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/cpu/blocks.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cpu {

/// A tensor of a segment as plain values of C: in place, or in a buffer of kBlockLength.
template <class C>
class SegmentBlock {
 public:
  /// Reads elements [begin, begin + n). Returns null for an undefined view.
  const C* read(const ConstView& view, std::int64_t begin, std::int64_t n) {
    if (!view.defined()) return nullptr;
    const void* from = advance(view.data, view.dtype, begin);
    if (view.dtype == dtype_of<C>) return static_cast<const C*>(from);
    load_run(view.dtype, from, 1, n, buffer_);
    return buffer_;
  }
  /// The same for elements that are changed before write().
  C* open(const View& view, std::int64_t begin, std::int64_t n) {
    if (!view.defined()) return nullptr;
    void* at = advance(view.data, view.dtype, begin);
    if (view.dtype == dtype_of<C>) return static_cast<C*>(at);
    load_run(view.dtype, at, 1, n, buffer_);
    return buffer_;
  }
  void write(const View& view, std::int64_t begin, std::int64_t n) const {
    if (!view.defined() || view.dtype == dtype_of<C>) return;
    store_run(view.dtype, advance(view.data, view.dtype, begin), 1, n, buffer_);
  }

 private:
  C buffer_[kBlockLength];
};

/// step.template operator()<C>(segment, begin, end) for blocks of kBlockLength elements of every
/// segment's parameter, where C is the compute type. Pieces of all segments are distributed over
/// threads.
template <class Segment, class Step>
void for_each_block(const std::vector<Segment>& segments, const Step& step) {
  struct Piece {
    const Segment* segment;
    std::int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (const Segment& segment : segments) {
    const std::int64_t n = segment.parameter.numel();
    for (std::int64_t begin = 0; begin < n; begin += kPiece)
      pieces.push_back({&segment, begin, std::min(n, begin + kPiece)});
  }
  const auto count = static_cast<std::int64_t>(pieces.size());
#pragma omp parallel for schedule(dynamic) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    with_floating_type(piece.segment->parameter.dtype, [&]<class C>() {
      for (std::int64_t at = piece.begin; at < piece.end; at += kBlockLength) {
        step.template operator()<C>(*piece.segment, at, std::min(kBlockLength, piece.end - at));
      }
    });
  }
}

}  // namespace tessera::cpu
