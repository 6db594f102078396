#pragma once

/// Elementwise work on a list of segments, each a few contiguous tensors of one length: for
/// optimizers, and for copies and sums of many tensors.

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
  /// The same for elements that are not read before write().
  C* place(const View& view, std::int64_t begin) {
    if (view.dtype != dtype_of<C>) return buffer_;
    return static_cast<C*>(advance(view.data, view.dtype, begin));
  }
  void write(const View& view, std::int64_t begin, std::int64_t n) const {
    if (!view.defined() || view.dtype == dtype_of<C>) return;
    store_run(view.dtype, advance(view.data, view.dtype, begin), 1, n, buffer_);
  }

 private:
  C buffer_[kBlockLength];
};

/// The element of a 0-d f64 view; null for an undefined one.
inline const double* number_in(const ConstView& view) {
  return static_cast<const double*>(view.data);
}

/// The elements of a segment and the dtype in which they are computed.
struct SegmentWork {
  std::int64_t numel = 0;
  DType compute = DType::kF32;
};

/// step.template operator()<C>(segment, begin, n) for blocks of kBlockLength elements of every
/// segment, where C is the compute type; work_of(segment) gives a SegmentWork. Pieces of all
/// segments are distributed over threads.
template <class Segment, class WorkOf, class Step>
void for_each_block(const std::vector<Segment>& segments, const WorkOf& work_of, const Step& step) {
  struct Piece {
    const Segment* segment;
    DType compute;
    std::int64_t begin, end;
  };
  std::vector<Piece> pieces;
  std::int64_t total = 0;
  for (const Segment& segment : segments) {
    const SegmentWork work = work_of(segment);
    total += work.numel;
    for (std::int64_t begin = 0; begin < work.numel; begin += kPiece)
      pieces.push_back({&segment, work.compute, begin, std::min(work.numel, begin + kPiece)});
  }
  parallel_for(static_cast<std::int64_t>(pieces.size()), threads_for(total), [&](std::int64_t i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    with_floating_type(piece.compute, [&]<class C>() {
      for (std::int64_t at = piece.begin; at < piece.end; at += kBlockLength) {
        step.template operator()<C>(*piece.segment, at, std::min(kBlockLength, piece.end - at));
      }
    });
  });
}

/// The same for the segments of an optimizer, by the length and dtype of their parameters.
template <class Segment, class Step>
void for_each_block(const std::vector<Segment>& segments, const Step& step) {
  const auto work_of = [](const Segment& segment) {
    return SegmentWork{segment.parameter.numel(), segment.parameter.dtype};
  };
  for_each_block(segments, work_of, step);
}

}  // namespace tessera::cpu
