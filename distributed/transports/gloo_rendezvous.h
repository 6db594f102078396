#pragma once

#include <memory>

#include "tessera/distributed/transports/gloo_connection.h"

namespace gloo {
class Context;
}

namespace tessera::distributed {

/// Waits until all ranks are there, then connects with each of them. Throws CollectiveError naming
/// those that did not come, CollectiveAborted when connecting fails.
std::shared_ptr<gloo::Context> connect_with_all(const GlooConnection::Options& options);

}  // namespace tessera::distributed
