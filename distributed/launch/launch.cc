#include "tessera/distributed/launch/launch.h"

#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/distributed/launch/launch_modes.h"
#include "tessera/distributed/launch/rank_environment.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

void check_nodes(const LaunchOptions& options) {
  TESSERA_CHECK(options.nnodes >= 1, "launch", "nnodes must be at least 1, got {}", options.nnodes);
  TESSERA_CHECK(options.node_rank >= 0 && options.node_rank < options.nnodes, "launch",
                "node_rank must be from 0 to {} with {} nodes, got {}", options.nnodes - 1,
                options.nnodes, options.node_rank);
  if (options.nnodes == 1) return;
  TESSERA_CHECK(options.mode == LaunchMode::kProcesses, "launch",
                "threads cannot be on {} nodes; launch processes", options.nnodes);
  TESSERA_CHECK(!options.rdzv_endpoint.empty(), "launch",
                "{} nodes need an rdzv_endpoint to meet at: host:port of node 0", options.nnodes);
}

void check_options(const LaunchOptions& options) {
  TESSERA_CHECK(options.ranks >= 1, "launch", "ranks must be at least 1, got {}", options.ranks);
  TESSERA_CHECK(options.timeout.count() > 0, "launch", "timeout must be positive, got {} ms",
                options.timeout.count());
  check_nodes(options);
  if (!options.device.is_cuda()) return;
  const std::string shortage = gpu_shortage(options, facts_of_this_host(options));
  TESSERA_CHECK_AS(DeviceError, shortage.empty(), "launch", "{}", shortage);
}

}  // namespace

LaunchResult launch(int argc, char** argv, const LaunchOptions& options,
                    const std::function<void(World&)>& body) {
  static int process_calls = 0;
  const bool by_processes = options.mode == LaunchMode::kProcesses;
  if (by_processes) ++process_calls;
  const RankEnvironment* rank = rank_environment();
  const bool passes_over = by_processes && rank != nullptr && rank->call != process_calls;
  if (by_processes && rank != nullptr && !passes_over) run_rank_process(options, body);
  // Also a rank throws what its parent threw, or it would not come to the call it belongs to.
  check_options(options);
  if (passes_over) return {};
  return by_processes ? launch_processes(argc, argv, options, process_calls)
                      : launch_threads(options, body);
}

LaunchResult result_of(const EarlyStop& stop) {
  constexpr int kExitBySignal = 128;
  return {.exit_code = stop.signal == 0 ? 0 : kExitBySignal + stop.signal,
          .signal = stop.signal,
          .steps = stop.steps};
}

bool is_rank_process() { return rank_environment() != nullptr; }

}  // namespace tessera::distributed
