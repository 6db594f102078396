#include "tessera/distributed/process_group_gloo.h"

#include <csignal>
#include <utility>

#include "tessera/distributed/gloo_connection.h"
#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/stream.h"

namespace tessera::distributed {
namespace {

class GlooGroup final : public ProcessGroup {
 public:
  GlooGroup(const std::string& name, const GlooOptions& options)
      : ProcessGroup(name, options.rank, options.size),
        connection_(
            std::make_shared<GlooConnection>(GlooConnection::Options{.group = name,
                                                                     .rank = options.rank,
                                                                     .size = options.size,
                                                                     .folder = options.folder,
                                                                     .timeout = options.timeout})) {
  }

  void run(const Collective& call) override {
    if (collective_device(call).is_null()) return call.ticket.note(FlightState::kDone);
    const Stream& stream = current_stream(kCpu);
    ResolvedCollective resolved = resolve(*this, call);
    PlannedExchange exchange = plan_exchange(resolved, size(), stream);
    stream.enqueue(collective_name(call.kind),
                   [connection = connection_, resolved = std::move(resolved),
                    plan = std::move(exchange.plan)] {
                     resolved.ticket.note(FlightState::kWaiting);
                     try {
                       connection->exchange(resolved, plan);
                     } catch (...) {
                       resolved.ticket.note(FlightState::kFailed);
                       throw;
                     }
                     resolved.ticket.note(FlightState::kDone);
                   });
  }

  void abort(const std::string& reason) noexcept override { connection_->abort(reason); }

 private:
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
  return std::make_shared<GlooGroup>(name, options);
}

}  // namespace tessera::distributed
