#pragma once

/// Who holds memory now: the storages of 1 MiB and more, by rank. Always on; small storages, of
/// which there are many, are not listed. Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor/memory_counters.h"

namespace tessera {

/// One storage that holds bytes.
struct MemoryHolder {
  std::string
      name;  ///< the storage's; of unnamed ones its number, and where in a model it was made
  std::int64_t bytes = 0;
  MemoryCategory category = MemoryCategory::kOther;
};

/// The largest `most` of the calling thread's rank, largest first.
std::vector<MemoryHolder> largest_memory_holders(int most);

namespace detail {

inline constexpr std::int64_t kLeastListedBytes = std::int64_t{1} << 20;

/// For storages: lists one under `key`, an address of its own, until it is taken off.
void list_memory_holder(const void* key, MemoryHolder holder);
void unlist_memory_holder(const void* key) noexcept;

}  // namespace detail
}  // namespace tessera
