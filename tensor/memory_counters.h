#pragma once

/// Live bytes by category for one rank: always on. A storage counts from materialize() to the
/// return of its block, with its size rounded up to the device's unit (CPU and null 64 B, CUDA 512
/// B). Thread-safe.

#include <array>
#include <cstdint>
#include <memory>

#include "tessera/tensor/memory/spin_lock.h"
#include "tessera/tensor/memory_category.h"

namespace tessera {

/// One reading: bytes per category and of categories together.
struct MemoryReading {
  std::array<std::int64_t, kMemoryCategories> bytes{};
  std::int64_t operator[](MemoryCategory category) const {
    return bytes[static_cast<std::size_t>(category)];
  }
  std::int64_t total() const;
};

/// Owned by a shared_ptr they live as long as bytes are counted here, whatever becomes of their
/// rank: so who counts bytes needs no handle of his own to count them off.
class MemoryCounters : public std::enable_shared_from_this<MemoryCounters> {
 public:
  void add(MemoryCategory category, std::int64_t bytes);       ///< bytes >= 0
  void subtract(MemoryCategory category, std::int64_t bytes);  ///< bytes >= 0

  MemoryReading current() const;
  /// The largest reading of each category since the last reset; these need not have been at one
  /// time.
  MemoryReading peak() const;
  /// The largest total since the last reset, of all categories. The process's resident memory can
  /// be above it: the allocator rounds blocks up by at most an eighth and keeps freed blocks
  /// for reuse (cached_cpu_bytes()); programs, libraries and the host's own objects are not
  /// counted.
  std::int64_t peak_total() const;
  /// The largest sum of parameter, gradient and gathered bytes at one time since the last reset:
  /// what sharding bounds.
  std::int64_t peak_model() const;
  /// Peaks start again from the current values.
  void reset_peak();

 private:
  mutable detail::SpinLock lock_;
  MemoryReading current_;
  std::int64_t total_ = 0;  // of current_
  std::int64_t model_ = 0;  // its part that peak_model() bounds
  MemoryReading peak_;
  std::int64_t peak_total_ = 0;
  std::int64_t peak_model_ = 0;
  std::shared_ptr<MemoryCounters> self_;  // while total_ is not 0
};

}  // namespace tessera
