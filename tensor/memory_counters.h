#pragma once

/// Live bytes of one rank by category; always on. A storage is counted from materialize() until its
/// block is returned, with its size rounded up to the device's unit (CPU and null 64 B, CUDA 512
/// B). Thread-safe.

#include <array>
#include <cstdint>
#include <memory>

#include "tessera/tensor/memory/spin_lock.h"
#include "tessera/tensor/memory_category.h"

namespace tessera {

/// One reading: bytes per category, and their total.
struct MemoryReading {
  std::array<std::int64_t, kMemoryCategories> bytes{};
  std::int64_t operator[](MemoryCategory category) const {
    return bytes[static_cast<std::size_t>(category)];
  }
  std::int64_t total() const;
};

/// The counters keep themselves alive while bytes are counted in them, also after their rank has
/// ended. Code that counts bytes therefore needs no handle of its own to subtract them later.
class MemoryCounters : public std::enable_shared_from_this<MemoryCounters> {
 public:
  void add(MemoryCategory category, std::int64_t bytes);       ///< bytes >= 0
  void subtract(MemoryCategory category, std::int64_t bytes);  ///< bytes >= 0

  MemoryReading current() const;
  /// The maximum of each category since the last reset; the maxima may be from different times.
  MemoryReading peak() const;
  /// The maximum of the total over all categories since the last reset. The process's resident
  /// memory can be larger: the allocator rounds blocks up by at most an eighth and keeps freed
  /// blocks for reuse (cached_cpu_bytes()); programs, libraries and the host's own objects are not
  /// counted.
  std::int64_t peak_total() const;
  /// The maximum, since the last reset, of parameter + gradient + gathered bytes: the memory that
  /// sharding bounds.
  std::int64_t peak_model() const;
  /// Sets the peaks to the current values.
  void reset_peak();

 private:
  mutable detail::SpinLock lock_;
  MemoryReading current_;
  std::int64_t total_ = 0;  // of current_
  std::int64_t model_ = 0;  // what peak_model() counts
  MemoryReading peak_;
  std::int64_t peak_total_ = 0;
  std::int64_t peak_model_ = 0;
  std::shared_ptr<MemoryCounters> self_;  // while total_ is not 0
};

}  // namespace tessera
