#pragma once

/// A lock for critical sections of a few instructions: one atomic exchange where a mutex needs two.
/// This matters because every tensor allocates and returns memory. A waiting thread yields the CPU.
/// Use with std::lock_guard.

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
