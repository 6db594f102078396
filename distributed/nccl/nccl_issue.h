#pragma once

/// How one collective is issued: in NCCL's own calls, or as messages, copies and additions. Private
/// to this folder and the NCCL process group.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/distributed/nccl/copy_segments.h"
#include "tessera/distributed/nccl/nccl_communicator.h"
#include "tessera/distributed/nccl/nccl_session.h"
#include "tessera/distributed/transports/exchange_plan.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {

// Registered memory of one communicator, in slots that are used in turn. Private to this folder
// and the NCCL process group.

/// Which slot comes next is the same on all ranks, as windows that lie alike need it: ranks issue
/// their collectives in one order. Counts its bytes as kCommunication of the rank that made it.
///
/// Slots that a CUDA graph has captured are used again by each replay, and nothing here orders a
/// replay and what other streams do in them meanwhile: their streams have to wait for each other.
class NcclRing {
 public:
  /// `slots` were allocated by the communicator, each of `slot_bytes`.
  NcclRing(std::vector<std::byte*> slots, std::size_t slot_bytes);
  ~NcclRing();
  NcclRing(const NcclRing&) = delete;
  NcclRing& operator=(const NcclRing&) = delete;

  std::size_t slot_bytes() const { return slot_bytes_; }
  /// The next slot, for work that is issued on `stream` from here on.
  std::byte* take(const DeviceStream& stream);
  /// What was issued on `stream` so far has used the slot that was taken last.
  void used(const DeviceStream& stream);

 private:
  struct Slot {
    std::byte* data;
    std::shared_ptr<const cuda::Mark> used_until;
  };
  const std::size_t slot_bytes_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  std::shared_ptr<MemoryCounters> counters_;
};

/// A communicator, and what it has of registered memory.
struct RegisteredCommunicator {
  std::shared_ptr<NcclCommunicator> communicator{};
  std::unique_ptr<NcclRing> ring{};  ///< null: none
};

/// The calling thread's rank's share of `call`, on `stream`.
class NcclIssue {
 public:
  NcclIssue(NcclSession& session, const ResolvedCollective& call, const DeviceStream& stream)
      : session_(session), call_(call), stream_(stream) {}

  /// all_gather, reduce_scatter, all_reduce, broadcast, reduce; `reduction` is not kInRankOrder.
  void by_calls(RegisteredCommunicator& registered, NcclReduction reduction);

  /// Any kind: a plan's messages, with the copies and additions around them.
  struct Way {
    NcclCommunicator* communicator = nullptr;
    int peer = 0;         ///< the other's place in it
    DeviceStream stream;  ///< of its own where messages to several pairs run side by side
  };
  using Ways = std::vector<Way>;  ///< by rank of the group
  void by_messages(const ExchangePlan& plan, const NcclCommunicators& communicators,
                   const Ways& ways);

 private:
  struct Packed;
  void run_packed(NcclCommunicator& communicator, const Packed& packed, NcclReduction reduction);
  void run_direct(NcclCommunicator& communicator, const ResolvedMember& member,
                  NcclReduction reduction);
  void copy(const std::vector<ByteCopy>& copies);
  void reduce(const ExchangePlan& plan);
  std::vector<CopySegment> pack(const Packed& packed) const;
  std::vector<CopySegment> unpack(const Packed& packed) const;
  bool is_root(const NcclCommunicator& communicator) const {
    return communicator.rank() == call_.root;
  }

  NcclSession& session_;
  const ResolvedCollective& call_;
  const DeviceStream stream_;
};

}  // namespace tessera::distributed
