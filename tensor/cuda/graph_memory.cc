#include "tessera/tensor/cuda/graph_memory.h"

#include <utility>

#include "tessera/tensor/cuda/device_pool.h"

namespace tessera::cuda {

GraphMemory::GraphMemory(std::shared_ptr<const Replays> replays) : replays_(std::move(replays)) {}

GraphMemory::~GraphMemory() {
  const std::shared_ptr<const Mark> latest = replays_->latest().done;
  for (const auto& [data, piece] : pieces_) piece.queue->release(data, latest.get());
}

void* GraphMemory::take(const std::shared_ptr<CapturedQueue>& queue, std::size_t bytes,
                        DevicePool& pool) {
  const std::lock_guard lock(mutex_);
  auto& free = free_[queue.get()];
  const auto fitting = free.lower_bound(bytes);
  if (fitting != free.end() && fitting->first - bytes <= fitting->first / 4) {
    void* data = fitting->second;
    free.erase(fitting);
    return data;
  }
  void* data = pool.take_now(bytes);
  if (data == nullptr) return nullptr;
  pieces_[data] = {.queue = queue, .bytes = bytes};
  bytes_ += bytes;
  return data;
}

void GraphMemory::give_back(const CapturedQueue* queue, void* data) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    free_[queue].emplace(pieces_.at(data).bytes, data);
  } catch (...) {
    // No host memory for a record: the piece is returned only when the graph ends.
  }
}

void GraphMemory::keep(std::shared_ptr<CapturedQueue> queue, void* data) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    pieces_[data] = {.queue = std::move(queue)};
  } catch (...) {
    // No host memory for a record: the block is leaked rather than reused too early.
  }
}

std::size_t GraphMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace tessera::cuda
