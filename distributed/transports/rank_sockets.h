#pragma once

/// TCP connections of one rank to all others, before any collective: each end proves that it knows
/// the run's secret, and says which rank it is (authenticated_channel.h).

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/store/authentication.h"
#include "tessera/distributed/store/drop_log.h"
#include "tessera/distributed/store/endpoint.h"
#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

/// What a rank's key is for.
inline constexpr const char* kRanksPurpose = "ranks";

struct RankSocketsOptions {
  /// Of a connection that has not said which rank it is: from then on it is dropped.
  static constexpr std::chrono::milliseconds kIntroduction{5000};
  /// Such connections beyond the number of ranks: one more drops the oldest.
  static constexpr std::size_t kMostStrangers = 64;

  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store{};  ///< where the ranks leave their addresses
  std::string address{};           ///< numeric, of this host; the port is picked by the system
  Credentials credentials{};
  LineSink log{};  ///< of connections that are dropped
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds introduction = kIntroduction;
};

/// Returns when this rank is connected with all others: a connected, non-blocking socket by rank,
/// and nothing at its own place. Nothing listens any more then. The higher rank of a pair connects
/// to the lower one. Throws CollectiveError when ranks do not come, or when one with this number is
/// there already; CollectiveAborted when connecting fails; InvalidArgument where the address needs
/// a secret.
std::vector<Socket> connect_ranks(const RankSocketsOptions& options, const std::string& group);

}  // namespace tessera::distributed
