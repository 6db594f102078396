#pragma once

/// Units of work that are distributed over threads, each with its own scratch and allowed to throw:
/// for kernels that consist of tile products.

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>

#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// Sets this thread's OpenMP thread count to 1 until the end of the scope: oneDNN's bits depend on
/// the number of threads that it may use.
class OneThreadScope {
 public:
  OneThreadScope() : previous_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadScope() { omp_set_num_threads(previous_); }
  OneThreadScope(const OneThreadScope&) = delete;
  OneThreadScope& operator=(const OneThreadScope&) = delete;

 private:
  int previous_;
};

/// The first exception of a parallel region's threads: none may leave the region.
class FirstError {
 public:
  void keep() {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// body(unit, scratch) for every unit of [0, count). Uses as many threads as `scratch` has parts of
/// `share` bytes, at least one; one thread computes a unit. Rethrows the first exception.
template <class Body>
void parallel_units(std::int64_t count, std::size_t share, Workspace scratch, const Body& body) {
  [[maybe_unused]] const auto threads =  // unused if OpenMP is off
      std::max<std::int64_t>(
          1, std::min(count,
                      static_cast<std::int64_t>(scratch.bytes / std::max<std::size_t>(share, 1))));
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(threads)) if (threads > 1)
  for (std::int64_t unit = 0; unit < count; ++unit) {
    try {
      OneThreadScope one_thread;
      const std::size_t skipped = share * static_cast<std::size_t>(omp_get_thread_num());
      body(unit, Workspace{static_cast<std::byte*>(scratch.data) + skipped, share});
    } catch (...) {
      error.keep();
    }
  }
  error.rethrow();
}

/// Splits one piece of scratch into arrays, one after another.
class ScratchCutter {
 public:
  explicit ScratchCutter(Workspace scratch) : next_(static_cast<std::byte*>(scratch.data)) {}
  /// `n` elements; rounded up, so that every array starts at a cache line.
  template <class T>
  T* take(std::int64_t n) {
    auto* const array = reinterpret_cast<T*>(next_);
    next_ += (static_cast<std::size_t>(n) * sizeof(T) + 63) / 64 * 64;
    return array;
  }
  /// `bytes` for cpu::multiply.
  Workspace rest(std::size_t bytes) const { return {next_, bytes}; }

 private:
  std::byte* next_;
};

}  // namespace tessera::cpu
