#pragma once

/// What goes over the wire between a TcpStore and its server: lists of byte strings, each list
/// preceded by its length.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::distributed {

using StoreMessage = std::vector<std::string>;

/// Largest size of a message. Both sides reject a larger one: any process can connect.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 20;

/// Throws InvalidArgument for one that is too large.
std::string encode(const StoreMessage& message);

/// Puts together what arrives in pieces.
class MessageReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// Nothing while the next message is incomplete. Throws DataError for bytes that are none.
  std::optional<StoreMessage> next();

 private:
  std::string bytes_;
};

}  // namespace tessera::distributed
