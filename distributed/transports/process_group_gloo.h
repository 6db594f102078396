#pragma once

/// Ranks as processes of one host or of several. They are connected by TCP on ports that the system
/// picks (Gloo); messages between ranks of one host go through memory that they share.

#include <chrono>
#include <memory>
#include <string>

#include "tessera/distributed/process_group.h"
#include "tessera/distributed/store/authentication.h"
#include "tessera/distributed/store/drop_log.h"
#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  /// Of this group alone, empty at first; the ranks find each other there. It is not needed once
  /// every rank is connected.
  std::shared_ptr<Store> store{};
  /// The numeric address of this host that the other ranks connect to; the default is for ranks of
  /// one host.
  std::string address = "127.0.0.1";
  /// Ranks share memory if they give equal texts and are on one host, with the same process numbers
  /// (not in different containers). Else, and where memory cannot be shared, TCP carries their
  /// messages.
  std::string node{};
  /// The same on all ranks, which prove to each other that they have it. Without a secret any user
  /// of the host can take the place of a rank; an address that other hosts can reach needs one.
  Credentials credentials{};
  LineSink log{};  ///< of connections that do not prove it, which are dropped
  std::chrono::milliseconds timeout =
      kDefaultTimeout;  ///< of connecting, and of each wait for a peer
};

/// Connects with the other ranks; every rank calls it. Throws CollectiveError when one does not
/// come, or when one with this number is there already; InvalidArgument where there needs to be a
/// secret. Ignores SIGPIPE in this process if nothing
/// handles it: a peer that dies must not take its neighbours down silently.
std::shared_ptr<ProcessGroup> make_gloo_group(const std::string& name, const GlooOptions& options);

}  // namespace tessera::distributed
