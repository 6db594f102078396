#pragma once

/// The two ways to run ranks, behind launch().

#include <functional>

#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/launch/node_group.h"
#include "tessera/distributed/launch/stop_signal.h"

namespace tessera::distributed {

/// Of a run whose ranks all ended well.
LaunchResult result_of(const EarlyStop& stop);

LaunchResult launch_threads(const LaunchOptions& options, const std::function<void(World&)>& body);

/// Starts the rank processes, watches them and sums up.
LaunchResult launch_processes(int argc, char** argv, const Launcher& launcher, int call);

/// Runs this process's rank and ends the process.
[[noreturn]] void run_rank_process(const LaunchOptions& options,
                                   const std::function<void(World&)>& body);

}  // namespace tessera::distributed
