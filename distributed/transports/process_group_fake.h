#pragma once

/// One rank of a group whose other ranks do not exist: for planning, and for tests that need a
/// large world's shapes, counts and schedule without its processes.
///
/// Collectives complete as soon as their stream reaches them, and have the right shapes. They are
/// checked, counted and traced as those of any group. Tensors are on the CPU, on a GPU, or on the
/// null device, where nothing is written.

#include <functional>
#include <memory>
#include <string>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// What the ranks that do not exist would have sent.
enum class FakeData : std::uint8_t {
  kZeros,  ///< zeros; outputs are cleared, what is reduced or broadcast in place stays this rank's
  /// What this rank has: a sum is `size` times it, rank by rank. On a GPU a reduction over more
  /// than 256 ranks is an InvalidArgument.
  kRepeat,
};

struct FakeOptions {
  int rank = 0;
  int size = 1;  ///< any
  FakeData data = FakeData::kZeros;
  /// How long a collective takes on its stream, in milliseconds; null: no time. See linear_cost().
  std::function<double(const ProcessGroup& group, const Collective& call)> cost = {};
};

/// Throws InvalidArgument unless 0 <= rank < size.
std::shared_ptr<ProcessGroup> make_fake_group(const std::string& name, const FakeOptions& options);

struct LinearCostOptions {
  double latency_ms = 0;       ///< of every collective that has peers
  double gigabytes_per_s = 1;  ///< of the bytes that this rank sends, > 0
};
/// latency + bytes sent / bandwidth. Throws InvalidArgument for numbers outside their ranges.
std::function<double(const ProcessGroup& group, const Collective& call)> linear_cost(
    const LinearCostOptions& options);

}  // namespace tessera::distributed
