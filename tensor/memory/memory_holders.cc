#include "tessera/tensor/memory/memory_holders.h"

#include <algorithm>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

struct Entry {
  MemoryHolder holder;
  const MemoryCounters* rank;  // an address to compare
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Entry> entries;
};

// Never destroyed: storages of static lifetime unlist themselves after main() has ended.
Registry& registry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

std::vector<MemoryHolder> largest_memory_holders(int most) {
  const MemoryCounters* rank = &current_rank_context()->memory();
  std::vector<MemoryHolder> holders;
  {
    std::lock_guard lock(registry().mutex);
    for (const auto& [key, entry] : registry().entries) {
      if (entry.rank == rank) holders.push_back(entry.holder);
    }
  }
  std::sort(holders.begin(), holders.end(), [](const MemoryHolder& a, const MemoryHolder& b) {
    return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
  });
  holders.resize(std::min(holders.size(), static_cast<std::size_t>(std::max(most, 0))));
  return holders;
}

namespace detail {

void list_memory_holder(const void* key, MemoryHolder holder) {
  const MemoryCounters* rank = &current_rank_context()->memory();
  std::lock_guard lock(registry().mutex);
  registry().entries.insert_or_assign(key, Entry{std::move(holder), rank});
}

void unlist_memory_holder(const void* key) noexcept {
  std::lock_guard lock(registry().mutex);
  registry().entries.erase(key);
}

}  // namespace detail
}  // namespace tessera
