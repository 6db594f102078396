#pragma once

/// Where the ranks of a group leave what the others must know before they are connected: small values
/// by name. In memory for threads, in a folder for processes of one host.

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tessera::distributed {

// Where the ranks of a group leave what the others must know before they are connected: small
// values by name.

/// Keys and values are any bytes. A key gets its value once.
class Store {
 public:
  virtual ~Store() = default;

  /// False, and nothing changes, when the key has a value already. Throws Error when the store
  /// cannot be reached or has no room.
  virtual bool set(const std::string& key, const std::string& value) = 0;
  /// Nothing for a key without value. Throws Error as set does.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  /// Returns when all of them have values, or after `timeout`: the keys that have none. Throws
  /// Error as set does.
  virtual std::vector<std::string> wait(const std::vector<std::string>& keys,
                                        std::chrono::milliseconds timeout) = 0;
};

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

/// For ranks of one host: a file for each key, in a folder that all of them may write.
class FolderStore final : public Store {
 public:
  explicit FolderStore(std::string folder);

  bool set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key) override;
  std::vector<std::string> wait(const std::vector<std::string>& keys,
                                std::chrono::milliseconds timeout) override;

 private:
  std::string path(const std::string& key) const;

  std::string folder_;
};

}  // namespace tessera::distributed
