#pragma once

/// The memory of one graph. Private to this folder.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/tensor/cuda/capture.h"

namespace tessera::cuda {

/// Owned by the graph and by the queues that have blocks of it out. At its end everything goes back
/// to the queues that it was taken for, behind the latest replay. Thread-safe.
class GraphMemory {
 public:
  explicit GraphMemory(std::shared_ptr<const Replays> replays);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  /// For the queue's captured work; null when there is no room. Only while the graph is captured.
  void* take(const std::shared_ptr<CapturedQueue>& queue, std::size_t bytes, DevicePool& pool);
  /// For later take() of the queue.
  void give_back(const CapturedQueue* queue, void* data) noexcept;
  /// A block of other memory, which the graph may read.
  void keep(std::shared_ptr<CapturedQueue> queue, void* data) noexcept;
  /// In blocks that were taken, now or before.
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
