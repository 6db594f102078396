#pragma once

/// Where the ranks of a group leave what the others must know before they are connected: small values
/// by name. In memory for threads, in a folder for processes of one host.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tessera::distributed {

/// A key holds any bytes up to kMaxKeyBytes, and gets a value once: any bytes up to kMaxValueBytes,
/// which is room for the addresses of 8,000 ranks.
inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = std::size_t{1} << 18;

/// Throws InvalidArgument if one of them is larger. Every store checks it in set().
void check_entry(const std::string& key, const std::string& value);

class Store {
 public:
  virtual ~Store() = default;

  /// False, and nothing changes, when the key has a value already. Throws InvalidArgument for a key
  /// or a value that is too large, Error when the store cannot be reached or has no room.
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
