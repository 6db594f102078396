#pragma once

/// The words of the messages between a TcpStore and its server. Requests and their replies:
///
///     hello PROTOCOL RUN NAME    ok, or refused WHY
///     set KEY VALUE              ok, or kept
///     get KEY                    ok VALUE, or none
///     wait MILLISECONDS KEY...   ok MISSING...
///     will KEY VALUE             ok

namespace tessera::distributed {

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
