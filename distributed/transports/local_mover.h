#pragma once

/// How a rank that reads its peers' memory, or makes up what they have, carries out its share of a
/// collective: at once on the CPU, as work of its stream on a GPU. Private to this folder.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {

// What each rank thread copies and adds once all ranks of a local group have arrived, on any
// device. Private to this folder.

/// The same collective as each rank means it, by rank.
using LocalCalls = std::vector<const ResolvedCollective*>;

class LocalMover;

/// The share of `rank` in moving member i: reads the peers' inputs and writes its own output; in
/// all_reduce, one range of every rank's output.
void move_member(const LocalCalls& calls, int rank, std::size_t i, LocalMover& mover);

/// A point of a rank's stream that peers wait for; none where work is done when the host goes on.
using LocalMark = std::optional<DeviceEvent>;

/// One rank's; used by its thread.
class LocalMover {
 public:
  LocalMover() = default;
  virtual ~LocalMover() = default;
  LocalMover(const LocalMover&) = delete;
  LocalMover& operator=(const LocalMover&) = delete;

  /// After everything so far.
  virtual LocalMark mark() = 0;
  /// What comes later comes after a peer's mark.
  virtual void wait(const LocalMark& mark) = 0;
  /// Throws DeviceError when the rank could not read its peers' memory.
  virtual void check_reach(const LocalCalls& calls, int rank) const = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Becomes zeros.
  virtual void clear(std::byte* to, std::size_t bytes) = 0;
  /// As reduce_in_order.
  virtual void reduce(const ResolvedCollective& call, std::span<const void* const> sources,
                      void* out, std::int64_t count) = 0;
};

/// Has no state: one for all ranks.
LocalMover& cpu_mover();
std::unique_ptr<LocalMover> make_gpu_mover(const DeviceStream& stream);

}  // namespace tessera::distributed
