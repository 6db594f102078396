#pragma once

/// What ranks connected by NCCL tell each other through the store: names to connect under,
/// failures, and the last collective that each rank has issued. NCCL exchanges none of these, and a
/// rank that has died or is late leaves the others waiting. Needs neither NCCL nor a GPU. Private
/// to this folder and the NCCL process group.
///
/// Thread-safe. Errors of the store (its server has died) are thrown while connecting; elsewhere
/// they are ignored, as if there were no news.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

/// Some of the ranks that share a store, under a key of their own: the ranks of one communicator.
struct NcclRankGroup {
  std::string key{};
  std::vector<int> ranks{};  ///< in the world, by place
  int place = 0;             ///< this rank's
};

class NcclPeers {
 public:
  /// `rank`: this one's in the world.
  NcclPeers(std::shared_ptr<Store> store, int rank);

  // ---- connecting ----
  /// Rank 0 of the communicator publishes the name.
  void give_id(const NcclRankGroup& rank_group, const std::string& id);
  /// Nothing: it has not been given within `timeout`.
  std::optional<std::string> take_id(const NcclRankGroup& rank_group,
                                     std::chrono::milliseconds timeout);
  /// This rank is about to connect.
  void come(const NcclRankGroup& rank_group);
  /// World ranks that are not.
  std::vector<int> absent(const NcclRankGroup& rank_group);

  // ---- while collectives run ----
  /// Records that this rank has issued the communicator's collective with this number.
  void note_issued(const NcclRankGroup& rank_group, std::uint64_t sequence);
  /// Gives the run up, with a reason for the others; only the first one counts.
  void tell_failure(const std::string& reason) noexcept;
  std::optional<std::string> failure() noexcept;
  /// Returns the ranks of the communicator that have not issued the collective. Posts a question in
  /// the store and waits briefly for replies from the ranks that are watched; returns early if the
  /// run is aborted. Several ranks may ask at once: a waiting rank also replies to the others.
  std::vector<int> not_arrived(const NcclRankGroup& rank_group, std::uint64_t sequence) noexcept;
  /// Replies to new questions. Call it regularly.
  void answer() noexcept;
  /// Records that this rank issues nothing more for the communicator.
  void leave(const NcclRankGroup& rank_group) noexcept;
  /// Returns a rank of the communicator that has left without having issued the collective.
  std::optional<int> left_before(const NcclRankGroup& rank_group, std::uint64_t sequence) noexcept;

 private:
  bool has_issued(const std::string& key, std::uint64_t sequence);
  int ask(const std::string& question);

  const std::shared_ptr<Store> store_;
  const int rank_;
  std::mutex mutex_;
  std::map<std::string, std::uint64_t> issued_;  // last number, by key
  int answered_ = 0;                             // questions, in the order of their numbers
};

}  // namespace tessera::distributed
