#pragma once

/// The storages of 1 MiB and more that hold memory now, by rank. Always on; smaller storages are
/// too many to list. Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor/memory_counters.h"

namespace tessera {

/// One storage that holds bytes.
struct MemoryHolder {
  /// The storage's name; for unnamed ones its number, and the module that created it.
  std::string name;
  std::int64_t bytes = 0;
  MemoryCategory category = MemoryCategory::kOther;
};

/// The `most` largest holders of the calling thread's rank, largest first.
std::vector<MemoryHolder> largest_memory_holders(int most);

namespace detail {

inline constexpr std::int64_t kLeastListedBytes = std::int64_t{1} << 20;

/// For storages: lists one under `key`, an address unique to it, until it is unlisted.
void list_memory_holder(const void* key, MemoryHolder holder);
void unlist_memory_holder(const void* key) noexcept;

}  // namespace detail
}  // namespace tessera
