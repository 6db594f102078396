#pragma once

/// The memory of one graph. Private to this folder.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/tensor/cuda/capture.h"

namespace tessera::cuda {

/// Owned by the graph and by the queues that have blocks of it in use. On destruction all memory is
/// returned to the queues that it was allocated for, after the latest replay. Thread-safe.
class GraphMemory {
 public:
  explicit GraphMemory(std::shared_ptr<const Replays> replays);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  /// Allocates for the queue's captured work; null if there is no memory. Only during the capture.
  void* take(const std::shared_ptr<CapturedQueue>& queue, std::size_t bytes, DevicePool& pool);
  /// Makes the block available to later take() calls of the queue.
  void give_back(const CapturedQueue* queue, void* data) noexcept;
  /// Keeps a block that is not the graph's own but that the graph may read.
  void keep(std::shared_ptr<CapturedQueue> queue, void* data) noexcept;
  /// Bytes of the blocks that the graph allocated, in use or free.
  std::size_t bytes() const;

 private:
  struct Piece {
    std::shared_ptr<CapturedQueue> queue;
    std::size_t bytes = 0;  // 0: kept
  };

  const std::shared_ptr<const Replays> replays_;
  mutable std::mutex mutex_;
  std::map<void*, Piece> pieces_;
  std::map<const CapturedQueue*, std::multimap<std::size_t, void*>> free_;
  std::size_t bytes_ = 0;
};

}  // namespace tessera::cuda
