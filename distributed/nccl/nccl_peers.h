#pragma once

/// What ranks that are connected by NCCL tell each other through the store: names to connect under,
/// failures, who has come how far. NCCL itself says nothing of the kind, and a rank that is gone or
/// late leaves the others waiting. Needs neither NCCL nor a GPU. Private to this folder and the
/// NCCL process group.
///
/// Thread-safe. What the store throws (a server that is gone) is thrown where somebody connects;
/// elsewhere it is taken for no news.

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

/// Some of the ranks that share a store, under a key that no other team has.
struct NcclTeam {
  std::string key{};
  std::vector<int> ranks{};  ///< in the world, by place
  int place = 0;             ///< this rank's
};

class NcclPeers {
 public:
  /// `rank`: this one's in the world.
  NcclPeers(std::shared_ptr<Store> store, int rank);

  // ---- connecting ----
  /// The team's place 0 gives the name.
  void give_id(const NcclTeam& team, const std::string& id);
  /// Nothing: it has not been given within `timeout`.
  std::optional<std::string> take_id(const NcclTeam& team, std::chrono::milliseconds timeout);
  /// This rank is about to connect.
  void come(const NcclTeam& team);
  /// World ranks that are not.
  std::vector<int> absent(const NcclTeam& team);

  // ---- while collectives run ----
  /// This rank has issued the team's collective with this number.
  void note_issued(const NcclTeam& team, std::uint64_t sequence);
  /// Gives the run up, with a reason for the others; only the first one counts.
  void tell_failure(const std::string& reason) noexcept;
  std::optional<std::string> failure() noexcept;
  /// Who of the team has not issued a collective: asks all, and gives those that watch one a moment
  /// to answer, less where somebody gives the run up. Several ranks may ask, each what it wants to
  /// know: who waits for answers gives them.
  std::vector<int> not_arrived(const NcclTeam& team, std::uint64_t sequence) noexcept;
  /// Answers such questions, where there are new ones. To be called every now and then.
  void answer() noexcept;
  /// This rank issues nothing more for the team.
  void leave(const NcclTeam& team) noexcept;
  /// A rank of the team that has left without having issued the collective.
  std::optional<int> left_before(const NcclTeam& team, std::uint64_t sequence) noexcept;

 private:
  bool has_issued(const std::string& team, std::uint64_t sequence);
  int ask(const std::string& question);

  const std::shared_ptr<Store> store_;
  const int rank_;
  std::mutex mutex_;
  std::map<std::string, std::uint64_t> issued_;  // by key of the team: the last number
  int answered_ = 0;                             // questions, in the order of their numbers
};

}  // namespace tessera::distributed
