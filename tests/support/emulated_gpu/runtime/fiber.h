#pragma once

/// Stacks of their own for functions that a host thread runs in turns. Known to the address and
/// thread sanitizers. Private to the block runner.

#include <cstddef>

namespace tessera::emulated {

/// Used by one host thread at a time.
class Fiber {
 public:
  /// Throws std::bad_alloc.
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next enter() begins `main`, which calls arrive() first and ends with leave(true).
  void start(void (*main)());
  /// On the host thread: runs the fiber until it leaves.
  void enter();
  /// On the fiber, once, when it begins.
  void arrive();
  /// On the fiber: back to where it was entered; `for_good`: it is not entered again before the
  /// next start().
  void leave(bool for_good);

 private:
  void* stack_pointer_ = nullptr;
  void* host_stack_pointer_ = nullptr;
  std::byte* stack_ = nullptr;
  const std::size_t offset_;  // of its first frame, from the end
  // Of the sanitizers:
  const void* host_stack_ = nullptr;
  std::size_t host_stack_bytes_ = 0;
  void* race_context_ = nullptr;
  void* host_race_context_ = nullptr;
};

/// Order between fibers for the thread sanitizer: what was done before release() is seen after
/// acquire() of the same address. Nothing in other builds.
void release(const void* address);
void acquire(const void* address);

}  // namespace tessera::emulated
