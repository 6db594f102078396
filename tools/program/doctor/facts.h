#pragma once

/// The properties of a machine that decide how runs go there: plain data, which read_facts() reads
/// and tests make up. Bytes unless said otherwise.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/cuda/error_meaning.h"
#include "tessera/tensor/kernels/table.h"

namespace tessera::tools::doctor {

struct CpuFacts {
  std::string model{};
  CpuFlags flags{};
  std::string requested_isa{};  ///< TESSERA_CPU_ISA
  int cores = 1;                ///< of the machine
  int usable = 1;               ///< those of this process's affinity mask
  double quota = 0;             ///< cores' worth of time that the control group allows; 0: no limit
};

struct MemoryFacts {
  std::int64_t total = 0;
  std::int64_t available = 0;
  std::int64_t limit = 0;  ///< of the control group; 0: none
  std::int64_t used = 0;   ///< of that limit, without what the system may drop
};

/// A folder, and what happened when a file was made there.
struct FolderFacts {
  std::string path{};
  std::string problem{};  ///< the system's reason; empty: it can be written
  std::int64_t free = 0;
  std::int64_t size = 0;
};

/// Soft limits; nothing: unlimited.
struct LimitFacts {
  std::optional<std::int64_t> open_files{};
  std::optional<std::int64_t> threads{};        ///< of this user; nothing for root
  std::int64_t threads_now = 0;                 ///< of this user
  std::optional<std::int64_t> group_threads{};  ///< of the control group
  std::int64_t group_threads_now = 0;
  std::optional<std::int64_t> locked_memory{};
  std::optional<std::int64_t> address_space{};
  std::optional<std::int64_t> file_size{};
  std::optional<std::int64_t> core_size{};
};

struct NetworkInterface {
  std::string name{};
  std::vector<std::string> addresses{};
  bool is_up = false;
  bool is_loopback = false;
};

struct NetworkFacts {
  std::vector<NetworkInterface> interfaces{};
  std::string host_name{};
  std::vector<std::string> host_addresses{};  ///< what the name resolves to
  std::string host_problem{};                 ///< why it does not
  std::string loopback_problem{};  ///< why 127.0.0.1 cannot be connected to; empty: it can
  std::string endpoint{};          ///< of --rdzv-endpoint
  std::string endpoint_problem{};  ///< why no way leads there
  /// This host's address on the way to the endpoint, else the one of the default route; empty: none.
  std::string route_address{};
};

struct GpuFacts {
  int pci = 0;  ///< display devices of NVIDIA's on the PCI bus
  cuda::MachineFacts machine{};
  std::vector<std::pair<int, int>> without_peer_access{};
  std::int64_t cudnn = 0;  ///< 91400 is 9.14; 0: none
  int nccl = 0;            ///< 22703 is 2.27.3; 0: none
};

struct Facts {
  CpuFacts cpu{};
  MemoryFacts memory{};
  GpuFacts gpu{};
  FolderFacts shared_memory{};
  FolderFacts temporary{};
  std::string temporary_variable{};  ///< TMPDIR's value where it names no folder
  LimitFacts limits{};
  NetworkFacts network{};
  std::int64_t clock = 0;  ///< seconds since 1970
  std::map<std::string, std::string> environment{};
  int parent = 0;  ///< the parent process
};

/// The run that is to be started.
struct Plan {
  int ranks = 2;  ///< of this host
  bool on_gpus = false;
};

}  // namespace tessera::tools::doctor
