#pragma once

/// A lock for a few instructions at a time: one atomic exchange where a mutex takes two, which is
/// what counts when every tensor takes and gives back memory. Who waits yields the CPU. For
/// std::lock_guard.

#include <atomic>
#include <thread>

namespace tessera::detail {

class SpinLock {
 public:
  void lock() noexcept {
    while (taken_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  bool try_lock() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace tessera::detail
