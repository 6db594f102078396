#pragma once

/// The bytes of sharded training, computed independently from shapes, ranks and dtypes: memory
/// tests compare counters with them. In the terms of fsdp/README.md, to the byte: S is the sum of
/// `shard` over the groups, B is `gathered` of a value and `slots` of a gradient.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/shape.h"

namespace tessera::testing {

inline std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
/// The counted size of a storage: each kind of device rounds up to its unit.
inline std::int64_t counted(std::int64_t bytes, Device device = default_device()) {
  return counted_bytes(device.type, static_cast<std::size_t>(bytes));
}

/// How a group is sharded, and the dtypes of its values and gradients.
struct Cut {
  int ranks = 1;  ///< of the shard axis; 1 also for replicate
  int rank = 0;
  DType stored = DType::kF64;
  DType values = DType::kF64;
  DType gradients = DType::kF64;  ///< until they are reduced
  bool offload = false;
  int kept_by = 0;  ///< neighbouring ranks that keep the value between forward and backward; 0:
                    ///< none
};

struct GroupBytes {
  std::int64_t shard = 0;     ///< local(), padding included
  std::int64_t momentum = 0;  ///< real rows
  std::int64_t gathered = 0;  ///< one storage
  std::int64_t kept = 0;      ///< the part of ReshardAfterForward(n)
  std::int64_t slots = 0;     ///< gradients until they are reduced
  std::int64_t sums = 0;      ///< outputs of a reduction that are not grad() itself
  std::int64_t grads = 0;     ///< grad()
  bool scatters = true;       ///< a reduction reads the slots; false: each slot equals its sum and
                              ///< is handed over
};

inline GroupBytes bytes_of(const std::vector<Shape>& shapes, const Cut& cut) {
  const auto size = [](DType dtype) { return static_cast<std::int64_t>(dtype_size(dtype)); };
  const Device home = cut.offload ? kCpu : default_device();
  const bool casts_gradients = cut.gradients != cut.stored || cut.offload;
  const bool aliases = cut.ranks == 1 && cut.values == cut.stored && !cut.offload;
  GroupBytes out;
  out.scatters = cut.ranks > 1;
  for (const Shape& shape : shapes) {
    const std::int64_t row = shape[0] == 0 ? 0 : shape.numel() / shape[0];
    const std::int64_t chunk = (shape[0] + cut.ranks - 1) / cut.ranks;
    const std::int64_t real = std::clamp<std::int64_t>(shape[0] - chunk * cut.rank, 0, chunk);
    out.shard += counted(chunk * row * size(cut.stored), home);
    out.momentum += counted(real * row * size(cut.stored), home);
    out.slots += counted(chunk * cut.ranks * row * size(cut.gradients));
    if (casts_gradients) {
      out.sums += counted(chunk * row * size(cut.gradients));
      out.grads += counted(real * row * size(cut.stored), home);
    } else {
      out.grads += counted(chunk * row * size(cut.stored));
    }
    if (aliases) continue;
    out.gathered = round_up(out.gathered, 256) + chunk * cut.ranks * row * size(cut.values);
    if (cut.kept_by > 0)
      out.kept += counted(chunk * (cut.ranks / cut.kept_by) * row * size(cut.values));
  }
  out.gathered = counted(out.gathered);
  return out;
}

inline std::vector<Shape> linear_shapes(std::int64_t in, std::int64_t out) {
  return {{out, in}, {out}};
}

/// Peaks of a flat chain of equal groups, with a root without parameters.
struct FlatChain {
  GroupBytes group;
  int groups = 1;
  bool told_to_stay = false;         ///< values are kept between forward and backward
  bool stays_between_steps = false;  ///< all values are kept, once they were gathered
  int depth = 1;                     ///< prefetch depth, the larger of the two directions
  int reduce_buffers = 1;            ///< set_reduce_scatter_max_input_buffers
  std::int64_t late = 0;             ///< bytes that backward may hold longer: copies in flight

  std::int64_t shards() const { return groups * group.shard; }
  /// Values while the k-th group runs: the one in use, and those prefetched or not released yet; or
  /// all that are kept. Plus the parts that are kept of other groups.
  std::int64_t values(int k) const {
    if (stays_between_steps) return groups * group.gathered;
    if (told_to_stay) return (k + 1) * group.gathered;
    return std::min(1 + depth, groups) * group.gathered + k * group.kept;
  }

  /// 2B + N + S, plus the kept parts of all values.
  std::int64_t forward_peak() const { return shards() + values(groups - 1) + group.kept; }

  /// 4B + N + 2S at most. Backward runs from the last group to the first. The first group's inputs
  /// have no gradients, so it is reduced at the end, when no value is gathered.
  std::int64_t backward_peak() const {
    std::int64_t peak = 0;
    for (int k = groups - 1; k >= 0; --k) {
      const int reduced = groups - 1 - k;
      const int in_flight = std::min(reduce_buffers, reduced);
      const int results = std::min(in_flight, 1);
      const int read = group.scatters ? in_flight : 0;  // slots besides the one that is being
                                                        // filled
      // While it computes.
      peak = std::max(peak, values(k) + (1 + read) * group.slots + reduced * group.grads +
                                results * group.sums);
      // When its reduction is issued.
      const int still = std::min(std::max(reduce_buffers - 1, 0), reduced);
      const bool none_left = k == 0 && !stays_between_steps;
      const std::int64_t left = none_left ? 0 : values(told_to_stay ? k - 1 : k);
      const int scattered = group.scatters ? 1 + still : 0;
      peak = std::max(peak, left + scattered * group.slots + (reduced + 1) * group.grads +
                                (1 + std::min(still, 1)) * group.sums);
    }
    return shards() + peak;
  }

  /// Bounds of fsdp/README.md; shard is S of one group.
  std::int64_t forward_bound() const { return shards() + (1 + depth) * group.gathered; }
  std::int64_t backward_bound() const {
    return 2 * shards() + (1 + depth) * group.gathered + (1 + reduce_buffers) * group.slots;
  }
};

}  // namespace tessera::testing
