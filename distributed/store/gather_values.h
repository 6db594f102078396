#pragma once

/// An all-gather of small values through a store, by ranks that are not connected yet.

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

struct GatheredValues {
  std::vector<std::string> values{};  ///< by place in `ranks`; empty if not all came
  std::vector<int> missing{};         ///< the ranks that did not come in time
  bool is_taken = false;              ///< another process has left a value as this rank
};

struct GatherRequest {
  std::string name{};      ///< once in a store for the same `ranks`
  int rank = 0;            ///< this process's
  std::vector<int> ranks;  ///< all that take part, ascending; the same for each of them
  std::string value{};     ///< without a line break; all together at most kMaxValueBytes
  std::chrono::milliseconds timeout{0};
  /// If given: called about once per second, at first more often, while others are missing. What it
  /// throws, this throws, unless all have come meanwhile.
  std::function<void()> check{};
};

/// Returns when all of `ranks` have called it. The first of them reads the values and leaves them as
/// one, so the requests of all together are proportional to their number. Values are at `name`-RANK.
/// Throws what the store throws.
GatheredValues gather_values(Store& store, const GatherRequest& request);

}  // namespace tessera::distributed
