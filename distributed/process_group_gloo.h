#pragma once

/// Ranks as processes of one host, connected by TCP over loopback on ports the system picks (Gloo).

#include <chrono>
#include <memory>
#include <string>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  /// A folder of this group alone, empty at first, writable by all its ranks; they find each other
  /// there. It is not needed once every rank is connected.
  std::string folder{};
  std::chrono::milliseconds timeout =
      kDefaultTimeout;  ///< of connecting, and of each wait for a peer
};

/// Connects with the other ranks; every rank calls it. Throws CollectiveError when one does not
/// come. Ignores SIGPIPE in this process if nothing handles it: a peer that dies must not take its
/// neighbours down silently.
std::shared_ptr<ProcessGroup> make_gloo_group(const std::string& name, const GlooOptions& options);

}  // namespace tessera::distributed
