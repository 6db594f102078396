#pragma once

/// Units of work that are distributed over threads, each with its own scratch and allowed to throw:
/// for kernels that consist of tile products.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/parallel.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// body(unit, scratch) for every unit of [0, count). Uses as many threads as `scratch` has parts of
/// `share` bytes, at least one; one thread computes a unit. Rethrows the first exception.
template <class Body>
void parallel_units(std::int64_t count, std::size_t share, Workspace scratch, const Body& body) {
  const auto threads =
      static_cast<int>(std::max<std::size_t>(1, scratch.bytes / std::max<std::size_t>(share, 1)));
  parallel_for(count, threads, [&](std::int64_t unit, int thread) {
    const std::size_t skipped = share * static_cast<std::size_t>(thread);
    body(unit, Workspace{static_cast<std::byte*>(scratch.data) + skipped, share});
  });
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
