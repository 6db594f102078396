#pragma once

/// Where the ranks of a group leave what the others must know before they are connected: small
/// values by name.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tessera::distributed {

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

}  // namespace tessera::distributed
