#pragma once

/// Segments of tensors as one kernel parameter, for optimizers and for copies and sums of many
/// tensors: one launch covers all of them. Pure functions, tested on the CPU.
///
/// Each segment is split into chunks of kSegmentChunk elements. Block c processes chunk c of the
/// list, which counts the chunks of all segments in order.

#include <cstddef>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/host_device.h"

namespace tessera::cuda {

inline constexpr std::int64_t kSegmentChunk = 4096;
/// The limit of kernel parameters, from CUDA 12.1 and compute capability 7.0 on.
inline constexpr std::size_t kParameterBytes = 32'764;
/// Of these, what a kernel may take besides the list.
inline constexpr std::size_t kOtherParameterBytes = 16;
/// Number of elements that are loaded at once if tensors are aligned.
inline constexpr int kSegmentPack = 4;

/// The tensors of a segment: contiguous, of one length, floating. Null: not used.
template <int N>
struct SegmentTensors {
  std::int64_t numel = 0;
  void* data[N] = {};
  DType dtypes[N] = {};
  bool packs = true;  ///< all are aligned for kSegmentPack elements at a time

  template <class AnyView>
  void set(int tensor, const AnyView& view) {
    data[tensor] = const_cast<void*>(static_cast<const void*>(view.data));
    dtypes[tensor] = view.dtype;
    const std::size_t bytes = kSegmentPack * dtype_size(view.dtype);
    if (reinterpret_cast<std::uintptr_t>(view.data) % (bytes < 16 ? bytes : 16) != 0) packs = false;
  }
};

/// The number of segments that fit into the parameters of a launch.
template <class S>
constexpr int most_segments() {
  return static_cast<int>((kParameterBytes - kOtherParameterBytes - 16) /
                          (sizeof(S) + sizeof(unsigned)));
}

/// S has the members of SegmentTensors. All of it is sent with each launch, also what is not used.
template <class S, int Most = most_segments<S>()>
struct SegmentList {
  using Segment = S;
  static constexpr int kMost = Most;

  int count = 0;
  unsigned first_chunk[kMost + 1] = {};  ///< of each segment; after the last segment the total
  S segments[kMost];

  unsigned chunks() const { return first_chunk[count]; }
  /// Returns false if the list is full. Empty segments are skipped.
  bool append(const S& segment) {
    if (segment.numel == 0) return true;
    if (count == kMost) return false;
    segments[count] = segment;
    const std::int64_t chunks = (segment.numel + kSegmentChunk - 1) / kSegmentChunk;
    first_chunk[count + 1] = first_chunk[count] + static_cast<unsigned>(chunks);
    ++count;
    return true;
  }
};

/// The work of one block: elements [begin, end) of a segment.
struct SegmentPart {
  int segment = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

template <class S, int Most>
TESSERA_HD SegmentPart part_of(const SegmentList<S, Most>& list, unsigned chunk) {
  int low = 0, high = list.count;  // the segment is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (list.first_chunk[middle] <= chunk ? low : high) = middle;
  }
  const std::int64_t begin = (chunk - list.first_chunk[low]) * kSegmentChunk;
  const std::int64_t end = begin + kSegmentChunk, numel = list.segments[low].numel;
  return {.segment = low, .begin = begin, .end = end < numel ? end : numel};
}

/// Calls issue(list) for SegmentLists that together hold those of `segments` for which bool
/// convert(segment, List::Segment* out) returns true.
template <class List, class Segments, class Convert, class Issue>
void for_each_list(const Segments& segments, const Convert& convert, const Issue& issue) {
  List list;
  for (const auto& segment : segments) {
    typename List::Segment converted;
    if (!convert(segment, &converted)) continue;
    if (list.append(converted)) continue;
    issue(list);
    list.count = 0;
    list.append(converted);
  }
  if (list.count > 0) issue(list);
}

}  // namespace tessera::cuda
