#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "tessera/distributed/store/store.h"

namespace tessera::distributed {

/// For ranks that are threads of one process, which share it. Thread-safe.
class MemoryStore final : public Store {
 public:
  bool set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  std::vector<std::string> wait(const std::vector<std::string>& keys,
                                std::chrono::milliseconds timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace tessera::distributed
