#pragma once

/// What all groups of one root share: the two communication streams and the memory that is between
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

#include "tessera/fsdp/options.h"
#include "tessera/tensor/allocator.h"
#include "tessera/tensor/stream.h"

namespace tessera::fsdp {

/// Gathers under way beyond the one in use.
inline constexpr int kGatherDepth = 1;

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
  /// The stream that the user's operations run on: the thread's current one.
  const Stream& compute() const { return current_stream(device_); }

  /// A gathered value was released on compute, now.
  void park(Block block);
  /// Before another gather allocates: makes the gather stream wait for parked values, oldest first,
  /// and gives their bytes back, until those that are left and `live` gathered buffers together are
  /// at most kGatherDepth.
  void make_room(int live);
  /// Makes the gather stream wait for all parked values and gives their bytes back.
  void unpark_all();

  /// A reduce that uses `blocks`, which are compute's, was issued and ends at `done`.
  void hold(Event done, std::vector<Block> blocks);
  /// Makes compute wait for the oldest reduces until at most `left` are held.
  void finish_reduces(int left);
  /// After a failure: lets go of everything, waiting where that is needed, and swallows what the
  /// streams report, since the failure itself is on its way to the user.
  void abandon() noexcept;
  int max_reduces_in_flight = 1;
  PrefetchOptions prefetch;

 private:
  struct Parked {
    Event released;
    Block block;
  };
  struct Held {
    Event done;
    std::vector<Block> blocks;
  };
  Device device_;
  Stream gather_;
  Stream reduce_;
  std::deque<Parked> parked_;
  std::deque<Held> held_;
};

}  // namespace tessera::fsdp
