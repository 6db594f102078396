#include <fmt/format.h>
#include <string.h>

#include "tessera/distributed/launch/launch_folder.h"
#include "tessera/distributed/launch/launch_modes.h"
#include "tessera/distributed/launch/node_group.h"
#include "tessera/distributed/launch/rank_supervisor.h"
#include "tessera/distributed/launch/signal_watch.h"

namespace tessera::distributed {

LaunchResult launch_processes(int argc, char** argv, const LaunchOptions& options, int call) {
  NodeGroup nodes(options, call);
  SignalWatch signals;  // outlives the folder: its destructor may end the process
  LaunchFolder folder;
  RankSupervisor supervisor(nodes.environment(), folder);
  std::vector<std::string> arguments(argv, argv + argc);
  if (arguments.empty()) arguments.emplace_back("tessera");
  supervisor.start(arguments);
  supervisor.wait([&nodes] { return nodes.failed_elsewhere(); });
  std::optional<RankFailure> failure = first_failure_of(supervisor.children());
  if (const int signal = SignalWatch::received(); signal != 0 && !failure)
    failure = {.text = fmt::format("stopped by signal {} ({})", signal, strsignal(signal))};
  const std::string text = nodes.finish(failure);
  if (!text.empty()) return {.exit_code = 1, .failure = text};
  return result_of(supervisor.early_stop());
}

}  // namespace tessera::distributed
