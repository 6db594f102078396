#pragma once

/// What two processes of a run need to prove to each other that both know its secret: HMAC-SHA256
/// and random bytes, from libsodium.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/distributed/store/endpoint.h"

namespace tessera::distributed {

inline constexpr std::size_t kKeyBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kMacBytes = 32;

using Key = std::array<unsigned char, kKeyBytes>;

/// HMAC-SHA256 of the bytes: kMacBytes of them.
std::string hmac(const Key& key, std::string_view bytes);

/// Whether they are equal, in a time that depends only on their lengths.
bool same_bytes(std::string_view a, std::string_view b);

/// Bytes that no other process can foresee, from the operating system. Throws Error without them.
std::string random_bytes(std::size_t count);

/// What all processes of a run have been given.
struct Credentials {
  std::string secret{};  ///< empty: none, which is enough only within one host
  std::string job{};     ///< tells runs with the same secret apart; not secret

  /// The key for one purpose: equal where secret, job and purpose are, and no help in finding the
  /// secret.
  Key key(std::string_view purpose) const;
};

/// 64 hexadecimal digits that no other process can foresee.
std::string make_secret();

/// The secret of a run on several hosts: what the file holds, without white space at its end, or
/// where `file` is empty the environment variable TESSERA_SECRET; empty without both. Throws
/// InvalidArgument for a file that cannot be read or that other users can read, and for a secret of
/// fewer than 16 bytes or more than 4096.
std::string read_secret(const std::string& file);

inline constexpr const char* kSecretVariable = "TESSERA_SECRET";

/// Throws InvalidArgument, with how to make a secret, where there is none and other hosts can reach
/// the address.
void check_has_secret(const Endpoint& at, const Credentials& credentials);

}  // namespace tessera::distributed
