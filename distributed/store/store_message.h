#pragma once

/// The messages between a TcpStore and its server.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::distributed {

// What goes over the wire between a TcpStore and its server: lists of byte strings, each list
// preceded by its length.

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

// The words of the messages between a TcpStore and its server. Requests and their replies:
//
//     hello PROTOCOL RUN NAME    ok, or refused WHY
//     set KEY VALUE              ok, or kept
//     get KEY                    ok VALUE, or none
//     wait MILLISECONDS KEY...   ok MISSING...
//     will KEY VALUE             ok

inline constexpr const char* kProtocol = "tessera store 1";
inline constexpr const char* kHello = "hello";
inline constexpr const char* kSet = "set";
inline constexpr const char* kGet = "get";
inline constexpr const char* kWait = "wait";
inline constexpr const char* kWill = "will";
inline constexpr const char* kOk = "ok";
inline constexpr const char* kRefused = "refused";
inline constexpr const char* kKept = "kept";
inline constexpr const char* kNone = "none";

}  // namespace tessera::distributed
