#include <fmt/format.h>
#include <string.h>

#include "tessera/distributed/launch_folder.h"
#include "tessera/distributed/launch_modes.h"
#include "tessera/distributed/rank_supervisor.h"

namespace tessera::distributed {

LaunchResult launch_processes(int argc, char** argv, const LaunchOptions& options, int call) {
  SignalWatch signals;  // outlives the folder: its destructor may end the process
  LaunchFolder folder;
  RankSupervisor supervisor(options.ranks, folder);
  std::vector<std::string> arguments(argv, argv + argc);
  if (arguments.empty()) arguments.emplace_back("tessera");
  supervisor.start(arguments, call);
  supervisor.wait();
  std::string failure = first_failure_text(supervisor.children());
  if (const int signal = SignalWatch::received(); signal != 0 && failure.empty())
    failure = fmt::format("stopped by signal {} ({})", signal, strsignal(signal));
  return {.exit_code = failure.empty() ? 0 : 1, .failure = failure};
}

}  // namespace tessera::distributed
