#pragma once

/// Reads the machine. Takes a fraction of a second, starts no process and leaves nothing behind.

#include <functional>
#include <string>
#include <vector>

#include "tessera/tools/program/doctor/facts.h"

namespace tessera::tools::doctor {

struct Resolved {
  std::vector<std::string> addresses{};  ///< numeric
  std::string problem{};
};

/// Where the machine is read. Tests name folders and functions of their own.
struct Sources {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string shared_memory = "/dev/shm";
  std::function<Resolved(const std::string&)> resolve{};  ///< empty: the system's, for a second
};

/// `endpoint` is that of --rdzv-endpoint, or empty. What the machine lacks is in the facts,
/// never an exception.
Facts read_facts(const Sources& sources, const std::string& endpoint);

// The parts, for tests.
CpuFacts read_cpu(const Sources& sources);
MemoryFacts read_memory(const Sources& sources);
LimitFacts read_limits(const Sources& sources);
NetworkFacts read_network(const Sources& sources, const std::string& endpoint);
/// Makes and removes a file there.
FolderFacts read_folder(const std::string& path);
int count_nvidia_devices(const Sources& sources);

/// CUDA's part, without the devices of the bus. The first call starts the driver.
GpuFacts read_gpus();

}  // namespace tessera::tools::doctor
