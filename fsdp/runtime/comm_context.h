#pragma once

/// The communication streams that all groups of one root share, and the memory that is in use by
/// two streams.
///
/// Memory crosses streams in two cases. In both, this object holds the bytes until the stream that
/// reuses them has been made to wait (fsdp/README.md has the table of event edges):
/// - gathered values belong to the gather stream and compute reads them: `park` holds them until
///   the gather stream waits for compute;
/// - gradient slots belong to compute and the reduce stream reads them: `hold_slots` holds them
///   until compute waits for the reduction.

#include <cstdint>
#include <deque>
#include <vector>

#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::fsdp {

/// Bytes that FSDP copied, by cause, besides the writes of the collectives. Header only.
struct CopyCounters {
  std::int64_t cast = 0;         ///< shards to the compute dtype, before a gather
  std::int64_t transfer = 0;     ///< between host and device, for offloaded parameters
  std::int64_t transposed = 0;   ///< Shard(d > 0): the sharded dim is moved to the front to be sent
  std::int64_t kept_part = 0;    ///< the 1/n that ReshardAfterForward(n) keeps
  std::int64_t extension = 0;    ///< packed and unpacked by a GatherExtension
  std::int64_t accumulated = 0;  ///< gradients that a kernel could not write into their slot
  std::int64_t reduced = 0;      ///< reduced gradients added to grad() or cast to its dtype

  std::int64_t total() const {
    return cast + transfer + transposed + kept_part + extension + accumulated + reduced;
  }
  bool operator==(const CopyCounters&) const = default;
};

/// The bound on gathered buffers, as seen by the next gather.
struct GatherRoom {
  int live = 0;   ///< gathered buffers of other groups, not counting held groups
  int depth = 1;  ///< gathers that may be in flight besides the group in use
};

class CommContext {
 public:
  explicit CommContext(Device device);
  /// Waits for work in flight: memory that another stream still uses must not be allocated again.
  ~CommContext();
  CommContext(const CommContext&) = delete;
  CommContext& operator=(const CommContext&) = delete;

  const DeviceStream& gather() const { return gather_; }
  const DeviceStream& reduce() const { return reduce_; }
  /// The stream of the all-reduces over the replica axis, which then overlap the next reduce-scatter.
  /// Created at first use.
  const DeviceStream& all_reduce();
  /// The stream of the user's operations: the thread's current stream.
  const DeviceStream& compute() const { return current_stream(device_); }

  /// Holds gathered memory that compute releases now.
  void park(MemoryBlock block);
  /// Called before a gather allocates. Makes the gather stream wait for parked memory, oldest
  /// first, and frees it, until the number of parked and live buffers is at most `depth`.
  void make_room(const GatherRoom& room);
  /// Makes the gather stream wait for all parked memory and frees it.
  void unpark_all();

  /// Holds `slots`, compute memory that an issued reduction reads until the event `done`.
  void hold_slots(DeviceEvent done, std::vector<MemoryBlock> slots);
  /// The same for the other memory that a reduction uses until its end.
  void hold_results(DeviceEvent done, std::vector<MemoryBlock> results);
  /// Makes compute wait for the oldest reductions until at most `left` of them hold slots, and at
  /// most max(1, left) hold results.
  void finish_reduces(int left);
  /// Makes compute wait for all reductions.
  void finish_all_reduces();
  /// Makes compute wait for an event. If the event carries a failure, it was reported elsewhere.
  void finish_quietly(const DeviceEvent& event) const noexcept;
  /// Makes the gather stream wait for compute's work so far. A failure of it is reported elsewhere.
  void wait_for_compute_quietly() const noexcept;
  /// After a failure: releases everything, waiting where necessary. Errors of the streams are
  /// ignored, because the failure itself is already being reported to the user.
  void abandon() noexcept;
  int max_reduces_in_flight = 1;
  CopyCounters copies;

 private:
  struct Parked {
    DeviceEvent released;
    MemoryBlock block;
  };
  struct Held {
    DeviceEvent done;
    std::vector<MemoryBlock> blocks;
  };
  void finish(std::deque<Held>& held, int left) const;

  Device device_;
  DeviceStream gather_;
  DeviceStream reduce_;
  DeviceStream all_reduce_;
  std::deque<Parked> parked_;
  std::deque<Held> slots_;
  std::deque<Held> results_;
};

}  // namespace tessera::fsdp
