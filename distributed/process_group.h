#pragma once

/// A fixed set of ranks that communicate together, whatever carries the bytes.
///
/// A transport implements one function, run(): it issues a checked Collective on the calling
/// thread's current stream and returns at once; decorators wrap the same function. Users call the
/// free functions of collectives.h, which check, number, trace and count before they call it. All
/// ranks of a group issue the same collectives in the same order; streams may differ, and
/// collectives issued on different streams may be under way together.
///
/// A group is driven by the thread of its rank; abort() may be called from any thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/flight_recorder.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/tensor.h"

namespace tessera::distributed {

enum class CollectiveKind : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kBarrier
};
const char* collective_name(CollectiveKind kind);  ///< "all_gather", ...

enum class ReduceOp : std::uint8_t { kSum, kMax };
const char* reduce_op_name(ReduceOp op);  ///< "sum", ...

/// One (possibly coalesced) collective. Tensors are contiguous and of one dtype; member i means the
/// same on every rank.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;                   ///< broadcast: the rank that sends
  std::vector<Tensor> inputs{};   ///< all_gather: this rank's parts; reduce_scatter: full ones;
                                  ///< all_to_all: what is sent; else the tensors, in place
  std::vector<Tensor> outputs{};  ///< all_gather: full ones; reduce_scatter: this rank's parts;
                                  ///< all_to_all: what is received; else empty
  /// all_to_all: how many rows of every member go to each rank and come from it, and how many
  /// elements a row of each member has; else empty.
  std::vector<std::int64_t> rows_sent{};
  std::vector<std::int64_t> rows_received{};
  std::vector<std::int64_t> row_elements{};
  std::uint64_t sequence = 0;  ///< position among the group's collectives, from 1
  std::string label{};         ///< who asks, for errors and traces
  FlightTicket ticket{};  ///< where the transport notes that it waits for peers and how that ended
};

/// A collective given up because something else failed first, here or on a peer: an echo. launch()
/// reports it only when it knows no better cause.
class CollectiveAborted : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

class ProcessGroup {
 public:
  ProcessGroup(std::string name, int rank, int size);
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Issues the collective on the current stream of the tensors' device (barrier: CPU). Everything
  /// that goes wrong later poisons that stream; on an inline stream it is thrown here:
  /// CollectiveAborted (peer gone, abort), CollectiveError (the ranks disagree, a peer has left),
  /// TimeoutError (deadline). Each of them leaves the group aborted. Transports write all_gather
  /// outputs also while their storage is filling.
  virtual void run(const Collective& call) = 0;
  /// Wakes every wait of this group, here and on the peers that can be reached; later calls fail
  /// with `reason`. Idempotent.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// The number of the next collective; collectives.h calls it once per call. Decorators forward
  /// it, so that a group and its decorated forms can be used side by side.
  virtual std::uint64_t next_sequence() { return ++sequence_; }

 private:
  std::string name_;
  int rank_;
  int size_;
  std::uint64_t sequence_ = 0;
};

/// How long a collective may wait for its peers before it fails with TimeoutError, unless told
/// otherwise.
inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);

}  // namespace tessera::distributed
