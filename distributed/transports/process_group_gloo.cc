#include "tessera/distributed/transports/process_group_gloo.h"

#include <csignal>
#include <numeric>
#include <utility>
#include <vector>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/distributed/transports/gloo_connection.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

// A group and its sub-groups share one connection, in whose ranks peers are named.
class GlooGroup final : public ProcessGroup {
 public:
  GlooGroup(Identity identity, std::vector<int> connected_ranks, std::uint64_t number,
            std::shared_ptr<GlooConnection> connection)
      : ProcessGroup(std::move(identity)),
        connected_ranks_(std::move(connected_ranks)),
        number_(number),
        connection_(std::move(connection)) {}

  std::string backend() const override { return "gloo"; }

  void run(const Collective& call) override {
    if (collective_device(call).is_null()) return call.ticket.note(FlightState::kDone);
    const DeviceStream& stream = current_stream(kCpu);
    ResolvedCollective resolved = resolve(*this, call);
    PlannedExchange exchange = plan_exchange(resolved, size(), stream);
    name_peers(exchange.plan.sends);
    name_peers(exchange.plan.receives);
    stream.enqueue(collective_name(call),
                   [connection = connection_, number = number_, resolved = std::move(resolved),
                    plan = std::move(exchange.plan)] {
                     resolved.ticket.note(FlightState::kWaiting);
                     try {
                       connection->exchange(resolved, plan, number);
                     } catch (...) {
                       resolved.ticket.note(FlightState::kFailed);
                       throw;
                     }
                     resolved.ticket.note(FlightState::kDone);
                   });
  }

  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    std::vector<int> connected;
    for (int member : request.members)
      connected.push_back(connected_ranks_[static_cast<std::size_t>(member)]);
    const std::uint64_t number =
        random::named_key(number_, request.key).value;  // the same on all members
    return std::make_shared<GlooGroup>(request.identity, std::move(connected), number, connection_);
  }

  void abort(const std::string& reason) noexcept override { connection_->abort(reason); }

 private:
  void name_peers(std::vector<Transfer>& transfers) const {
    for (Transfer& transfer : transfers)
      transfer.peer = connected_ranks_[static_cast<std::size_t>(transfer.peer)];
  }

  std::vector<int> connected_ranks_;  // by rank of this group
  std::uint64_t number_;              // of this group on the connection
  std::shared_ptr<GlooConnection> connection_;
};

// Gloo writes to sockets without MSG_NOSIGNAL.
void ignore_sigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::shared_ptr<ProcessGroup> make_gloo_group(const std::string& name, const GlooOptions& options) {
  ignore_sigpipe();
  std::vector<int> ranks(static_cast<std::size_t>(options.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto connection =
      std::make_shared<GlooConnection>(GlooConnection::Options{.group = name,
                                                               .rank = options.rank,
                                                               .size = options.size,
                                                               .store = options.store,
                                                               .address = options.address,
                                                               .node = options.node,
                                                               .credentials = options.credentials,
                                                               .log = options.log,
                                                               .timeout = options.timeout});
  return std::make_shared<GlooGroup>(
      ProcessGroup::Identity{.name = name, .rank = options.rank, .ranks = ranks}, ranks, 0,
      std::move(connection));
}

}  // namespace tessera::distributed
