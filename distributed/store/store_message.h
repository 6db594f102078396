#pragma once

/// The messages between a TcpStore and its server: the payloads of a channel's frames.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/distributed/store/authenticated_channel.h"

namespace tessera::distributed {

/// Requests and their replies. MILLISECONDS has kWaitTimeBytes.
///
///     join RUN NAME              ok, or refused WHY
///     set KEY VALUE              ok, or kept
///     get KEY                    ok VALUE, or none
///     wait MILLISECONDS KEY...   ok MISSING...
///     will KEY VALUE             ok
struct StoreMessage {
  FrameType type;
  std::vector<std::string> parts{};
  bool operator==(const StoreMessage&) const = default;
};

inline constexpr std::size_t kWaitTimeBytes = 8;
/// What the store's key is for.
inline constexpr std::string_view kStorePurpose = "store";

/// A payload: each part preceded by its length in four bytes.
std::string encode_parts(const std::vector<std::string>& parts);

/// Nothing for a payload that is no list of parts.
std::optional<std::vector<std::string>> decode_parts(std::string_view payload);

}  // namespace tessera::distributed
