#pragma once

/// A Gloo context whose connections are made already.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/store/endpoint.h"

namespace gloo {
class Context;
}

namespace tessera::distributed {

/// So many connections are handed over at a time, and each needs two descriptors more meanwhile.
inline constexpr std::size_t kGlooPairsTogether = 64;

/// Over the sockets of `rank` to all other ranks, by rank. Throws what Gloo throws.
std::shared_ptr<gloo::Context> make_gloo_context(int rank, std::vector<Socket> sockets);

}  // namespace tessera::distributed
