#include "tessera/distributed/launch/probe.h"

#include <chrono>

#include "tessera/distributed/store/endpoint.h"
#include "tessera/tensor/error.h"

namespace tessera::distributed {

std::string loopback_problem() {
  const char* loopback = "127.0.0.1";
  try {
    const Socket server = listen_at({.host = loopback});
    return connect_to({.host = loopback, .port = server.local_port()}, std::chrono::seconds(1))
        .problem;
  } catch (const Error& error) {
    return error.what();
  }
}

std::string host_of_endpoint(const std::string& rdzv_endpoint) {
  constexpr int kAnyPort = 1;
  return parse_endpoint("--rdzv-endpoint", rdzv_endpoint, kAnyPort).host;
}

bool can_be_reached(const std::string& numeric_address) { return !is_loopback(numeric_address); }

}  // namespace tessera::distributed
