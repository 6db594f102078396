#pragma once

/// What all groups of one root share: the communication streams and the memory that is between
/// two streams.
///
/// Memory crosses streams in two places, and each time the bytes are held here until the stream
/// that reuses them was made to wait (the event-edge table in README.md has the whole list):
///   - gathered values belong to the gather stream and are read by compute: `park` until the gather
///   stream waits for compute;
///   - gradient slots belong to compute and are read by the reduce stream: `hold` until compute
///   waits for the reduce.

#include <deque>
#include <vector>

#include "tessera/fsdp/runtime/copy_counters.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::fsdp {

/// What a gather may find before it takes memory.
struct GatherRoom {
  int live = 0;   ///< buffers of other groups that count against the bound: those not held
  int depth = 1;  ///< gathers under way beyond the one in use
};

class CommContext {
 public:
  explicit CommContext(Device device);
  /// Waits for what is in flight: memory that another stream still uses must not be handed out
  /// again.
  ~CommContext();
  CommContext(const CommContext&) = delete;
  CommContext& operator=(const CommContext&) = delete;

  const Stream& gather() const { return gather_; }
  const Stream& reduce() const { return reduce_; }
  /// Of reductions among replicas, so that they overlap the next reduce-scatter. Made at first use.
  const Stream& all_reduce();
  /// The stream that the user's operations run on: the thread's current one.
  const Stream& compute() const { return current_stream(device_); }

  /// A gathered value was released on compute, now.
  void park(Block block);
  /// Before another gather allocates: makes the gather stream wait for parked values, oldest first,
  /// and gives their bytes back, until those that are left and the live ones together are at most
  /// `depth`.
  void make_room(const GatherRoom& room);
  /// Makes the gather stream wait for all parked values and gives their bytes back.
  void unpark_all();

  /// A reduce that reads `slots`, which are compute's, was issued and is done with them at `done`.
  void hold_slots(Event done, std::vector<Block> slots);
  /// The same of what a reduce uses to its end, beyond its slots.
  void hold_results(Event done, std::vector<Block> results);
  /// Makes compute wait for the oldest reduces until at most `left` hold slots and as many, but at
  /// least the latest, hold results.
  void finish_reduces(int left);
  /// Makes compute wait for all of them.
  void finish_all_reduces();
  /// Makes compute wait for an event whose failure, if it carries one, was reported elsewhere.
  void finish_quietly(const Event& event) const noexcept;
  /// After a failure: lets go of everything, waiting where that is needed, and swallows what the
  /// streams report, since the failure itself is on its way to the user.
  void abandon() noexcept;
  int max_reduces_in_flight = 1;
  CopyCounters copies;

 private:
  struct Parked {
    Event released;
    Block block;
  };
  struct Held {
    Event done;
    std::vector<Block> blocks;
  };
  void finish(std::deque<Held>& held, int left) const;

  Device device_;
  Stream gather_;
  Stream reduce_;
  Stream all_reduce_;
  std::deque<Parked> parked_;
  std::deque<Held> slots_;
  std::deque<Held> results_;
};

}  // namespace tessera::fsdp
