#pragma once

/// Ranks with a GPU each, connected by NCCL: as processes, of one host or of several, or as
/// threads. Carries CUDA tensors only; see by_device() for a group that carries others too.
///
/// A collective runs on the current stream of its tensors' GPU, and the host goes on as soon as
/// NCCL has it. The first one of a group connects its ranks, and an exchange connects each pair of
/// ranks by itself, so that others need not take part. A list of tensors is one group of NCCL's
/// calls, its small members one call together. Connecting blocks until
/// every peer has joined. All ranks must therefore use their groups for the first time in the same
/// order, on any stream. Results are NCCL's: sums in an order of its own, of 16-bit floats perhaps
/// rounded on the way. Reductions that NCCL defines differently from ReduceOp (a NaN in minima and
/// maxima of floats; averages and factors that a 16-bit float does not hold) are computed here, in
/// rank order.
///
/// A watchdog looks at what runs: a rank that is late, has left or failed, and errors that NCCL
/// reports, end all groups of the rank, and host waits throw. Then peers end too.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "tessera/distributed/process_group.h"
#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

/// Memory of NCCL's own allocator through which collectives pass.
enum class NcclBuffers : std::uint8_t {
  kNone,
  kRegistered,  ///< known to NCCL, which then copies less
  kSymmetric,   ///< windows that lie alike on all ranks: fewer of the GPU's processors at work
};

struct NcclSettings {
  /// Reductions have a communicator of their own, so that a gather on one stream does not wait for
  /// a reduction on another: one communicator runs its calls in the order of their issue. Costs its
  /// memory twice.
  bool separate_reductions = false;
  NcclBuffers buffers = NcclBuffers::kNone;
  /// Of each communicator where there are buffers: used in turn, so that the next collective need
  /// not wait for the copies of the last one.
  int slots = 2;
  std::size_t slot_bytes = std::size_t{32} << 20;
};

struct NcclOptions {
  int rank = 0;
  int size = 1;
  /// Shared by the ranks of this group alone, and kept while the group lives: ranks find each other
  /// there, and tell each other of failures.
  std::shared_ptr<Store> store{};
  int device = 0;                                       ///< this rank's GPU, and no other rank's
  std::chrono::milliseconds timeout = kDefaultTimeout;  ///< of connecting, and of each collective
  NcclSettings settings{};
};

/// Whether this build has NCCL.
bool has_nccl();

/// Of the library that was found at run time, in NCCL's form: 22703 is 2.27.3. 0 in a build without
/// NCCL.
int nccl_version();
/// The oldest version that Tessera was tried with.
inline constexpr int kOldestNccl = 22700;

/// Does not connect yet. A rank that destroys its groups has left when the work that it issued is
/// done; if an exception destroys them, they are aborted. Throws InvalidArgument for invalid
/// options, DeviceError in a build without NCCL and for a GPU that does not exist.
std::shared_ptr<ProcessGroup> make_nccl_group(const std::string& name, const NcclOptions& options);

}  // namespace tessera::distributed
