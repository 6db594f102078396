#include "tessera/distributed/transports/gloo_rendezvous.h"

#include <fmt/format.h>
#include <gloo/context.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/distributed/store/endpoint.h"
#include "tessera/distributed/transports/connect_error.h"
#include "tessera/distributed/transports/gloo_context.h"
#include "tessera/distributed/transports/rank_sockets.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

// Gloo's reason without the place in its source: "[enforce fail at FILE:LINE] CONDITION. reason".
std::string reason_of(const std::exception& error) {
  std::string text = error.what();
  if (!text.starts_with('[')) return text;
  const std::size_t place = text.find("] ");
  if (place != std::string::npos) text.erase(0, place + 2);
  const std::size_t condition = text.find(". ");
  if (condition != std::string::npos && condition + 2 < text.size()) text.erase(0, condition + 2);
  return text;
}

// What Gloo would report in words of its source, or by waiting for its deadline.
void check_sockets(const GlooConnection::Options& options) {
  if (const int problem = listening_problem(options.address); problem != 0) {
    const char* advice = "name another address of this host with --local-addr";
    if (is_loopback(options.address))
      advice = "switch the loopback interface on: ip link set lo up";
    if (problem == EMFILE || problem == ENFILE)
      advice = "raise the limit of open files (ulimit -n)";
    throw_cannot_connect<CollectiveError>(
        options.rank, options.group,
        fmt::format("the other ranks cannot reach this one at {}: {}; {}", options.address,
                    std::strerror(problem), advice));
  }
  // Gloo's own, and while the connections are made: those of strangers, and what handing over takes.
  constexpr rlim_t kBeside = RankSocketsOptions::kMostStrangers + 2 * kGlooPairsTogether + 8;
  rlimit limit = {};
  std::error_code unknown;
  const auto open_now = static_cast<rlim_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd", unknown), {}));
  const rlim_t needed = open_now + 2 * static_cast<rlim_t>(options.size) + kBeside;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && !unknown && needed > limit.rlim_cur)
    throw_cannot_connect<CollectiveError>(
        options.rank, options.group,
        fmt::format("connecting with {} other ranks needs {} open files, the limit is {}; "
                    "raise it (ulimit -n)",
                    options.size - 1, needed, limit.rlim_cur));
}

}  // namespace

std::shared_ptr<gloo::Context> connect_with_all(const GlooConnection::Options& options) {
  check_sockets(options);
  std::vector<Socket> sockets = connect_ranks({.rank = options.rank,
                                               .size = options.size,
                                               .store = options.store,
                                               .address = options.address,
                                               .credentials = options.credentials,
                                               .log = options.log,
                                               .timeout = options.timeout},
                                              options.group);
  try {
    return make_gloo_context(options.rank, std::move(sockets));
  } catch (const std::exception& error) {
    throw_cannot_connect<CollectiveAborted>(
        options.rank, options.group,
        fmt::format("cannot connect with the other ranks from {}: {}", options.address,
                    reason_of(error)));
  }
}

}  // namespace tessera::distributed
