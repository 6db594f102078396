#pragma once

/// The messages between ranks of one host, which go through memory that both map.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/exchange_plan.h"
#include "tessera/distributed/transports/shared_link.h"

namespace tessera::distributed {

/// Thread-safe. Exchanges of several threads may be under way together; each thread moves the
/// messages of its own, so there is no other thread that would need a core.
class SharedMemory {
 public:
  struct Options {
    std::string group{};  ///< its name, for errors
    int rank = 0;
    int size = 1;
    std::shared_ptr<Store> store{};  ///< the same on all ranks
    std::string node{};              ///< ranks share memory only if it is equal
    std::chrono::milliseconds timeout = kDefaultTimeout;  ///< of each wait for the other ranks
    /// Called during these waits, about once per second; throws if one of them is gone.
    std::function<void()> check{};
  };
  /// Maps the memory of all ranks that have the same node and run on the same kernel with the same
  /// process numbers. Every rank calls it. Ranks that cannot map each other's memory do not share
  /// any, and say so on stderr. Throws CollectiveError naming the ranks that do not come.
  explicit SharedMemory(const Options& options);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Whether messages to and from this rank go through shared memory.
  bool reaches(int peer) const { return links_[static_cast<std::size_t>(peer)] != nullptr; }

  /// When an exchange ends although messages are missing.
  struct Limits {
    std::chrono::steady_clock::time_point deadline{};
    /// Asked whenever nothing can be moved, with the ranks whose messages are missing; wake() makes
    /// it asked again.
    std::function<bool(std::span<const int> missing)> is_over{};
  };
  /// Moves those of the plan's messages whose peers it reaches. `group` is a number that tells
  /// groups apart. `all_take_part`: a rank that sends a message of the plan to this rank also
  /// receives the messages that this rank sends to it. Returns the ranks whose messages are still
  /// missing; an empty list if all messages were moved.
  std::vector<int> exchange(const ExchangePlan& plan, std::uint64_t group, bool all_take_part,
                            const Limits& limits);
  void wake() const noexcept;

 private:
  class Exchange;

  // What the ranks tell each other through the store, in this order. `sharing`: the ranks of this
  // host, this one too.
  std::vector<int> find_ranks_of_host(const Options& options) const;
  void map_segments(const Options& options, const std::vector<int>& sharing);

  std::unique_ptr<SharedSegment> own_;  // null: no rank shares memory with this one
  std::vector<std::unique_ptr<SharedSegment>> segments_;  // of the others, by rank
  std::vector<std::unique_ptr<SharedLink>> links_;        // by rank; null: by TCP
};

}  // namespace tessera::distributed
