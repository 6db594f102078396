#include "tessera/tensor/cuda/pinned_pool.h"

#include <cuda_runtime_api.h>

#include <optional>
#include <utility>

#include "tessera/tensor/cuda/check_cuda.h"

namespace tessera::cuda {
namespace {

// Above this total, take() waits for a piece of the right size, if there is one, instead of
// allocating.
constexpr std::size_t kPinnedBound = 8 * kLargestPinned;

}  // namespace

PinnedPool& PinnedPool::instance() {
  static auto* pool = new PinnedPool;  // never destroyed: the driver may already be unloaded
  return *pool;
}

PinnedPool::Piece PinnedPool::take(std::size_t bytes) {
  const int size_class = pinned_class(bytes);
  std::optional<Kept> oldest;
  {
    const std::lock_guard lock(mutex_);
    Line& line = kept_[static_cast<std::size_t>(size_class)];
    if (!line.empty()) {
      const Kept& front = line.front();
      const bool free = front.busy_until == nullptr || front.busy_until->reached();
      if (free || allocated_ >= kPinnedBound) {
        oldest = std::move(line.front());
        line.pop_front();
      }
    }
    if (!oldest) allocated_ += pinned_class_bytes(size_class);
  }
  if (oldest) {
    if (oldest->busy_until != nullptr) oldest->busy_until->await();
    return Piece(*this, oldest->data, size_class);
  }
  void* data = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&data, pinned_class_bytes(size_class), cudaHostAllocPortable);
  if (error != cudaSuccess) {
    const std::lock_guard lock(mutex_);
    allocated_ -= pinned_class_bytes(size_class);
  }
  check_cuda(error, "copy_from_host", "cudaHostAlloc of pinned host memory");
  return Piece(*this, data, size_class);
}

void PinnedPool::give_back(void* data, int size_class,
                           std::shared_ptr<const Mark> busy_until) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    kept_[static_cast<std::size_t>(size_class)].push_back({data, std::move(busy_until)});
  } catch (...) {
    // No host memory for a record: the piece is leaked rather than reused too early.
  }
}

}  // namespace tessera::cuda
