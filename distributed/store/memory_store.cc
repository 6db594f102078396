#include "tessera/distributed/store/memory_store.h"

namespace tessera::distributed {

bool MemoryStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  const bool is_new = values_.emplace(key, value).second;
  changed_.notify_all();
  return is_new;
}

std::optional<std::string> MemoryStore::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> MemoryStore::wait(const std::vector<std::string>& keys,
                                           std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  std::vector<std::string> missing = keys;
  changed_.wait_for(lock, timeout, [&] {
    std::erase_if(missing, [this](const std::string& key) { return values_.contains(key); });
    return missing.empty();
  });
  return missing;
}

}  // namespace tessera::distributed
