#pragma once

/// How one rank reaches all others: by sockets, and by shared memory where they are on its host. A
/// thread watches over the sockets, which show whether a peer lives, whatever carries the messages.
/// Gloo itself is seen by the gloo_*.cc files alone.

#include <chrono>
#include <memory>
#include <string>

#include "tessera/distributed/store/authentication.h"
#include "tessera/distributed/store/drop_log.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/exchange_plan.h"

namespace tessera::distributed {

/// Thread-safe. Exchanges of several threads may be under way together.
class GlooConnection {
 public:
  struct Options {
    std::string group{};  ///< its name, for errors
    int rank = 0;
    int size = 1;
    std::shared_ptr<Store>
        store{};                ///< empty at first; the ranks of the group find each other there
    std::string address{};      ///< numeric, of this host; the other ranks connect to it
    std::string node{};         ///< see GlooOptions
    Credentials credentials{};  ///< the same on all ranks
    LineSink log{};             ///< of strangers' connections, which are dropped
    std::chrono::milliseconds timeout = kDefaultTimeout;  ///< of connecting, and of each exchange
  };
  /// Returns when this rank is connected with all others. Throws CollectiveError when that fails.
  explicit GlooConnection(const Options& options);
  /// Tells the peers that this rank leaves in order (unless aborted), then closes.
  ~GlooConnection();
  GlooConnection(const GlooConnection&) = delete;
  GlooConnection& operator=(const GlooConnection&) = delete;

  /// Runs the plan of `call`, whose peers are ranks of this connection, and waits for it. `group`
  /// is a number that tells the groups that share the connection apart. Throws as ProcessGroup::run
  /// says.
  void exchange(const ResolvedCollective& call, const ExchangePlan& plan, std::uint64_t group);
  /// Wakes every exchange here, and tells the peers.
  void abort(const std::string& reason) noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::distributed
