#pragma once

/// Registered memory of one communicator, in slots that are used in turn. Private to this folder
/// and the NCCL process group.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/distributed/nccl/nccl_communicator.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {

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
  std::byte* take(const Stream& stream);
  /// What was issued on `stream` so far has used the slot that was taken last.
  void used(const Stream& stream);

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

}  // namespace tessera::distributed
