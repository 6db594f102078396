#pragma once

/// The parameters, buffers and modules that were constructed and not registered yet, of the whole
/// process: how initialize() notices a member that its module forgot to register, which would
/// otherwise be neither initialised, trained nor saved. Found by address. For nn itself.
/// Thread-safe.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tessera::nn::detail {

enum class MemberKind : std::uint8_t { kParameter, kBuffer, kModule };

struct UnregisteredMember {
  const void* address;  ///< of the Parameter, Buffer or Module
  MemberKind kind;
};

void note_constructed(const void* address, MemberKind kind);
/// Registered, or destroyed. No-op for an address that is not noted.
void forget_constructed(const void* address) noexcept;
/// The first noted member inside [begin, begin + bytes) other than `except`.
std::optional<UnregisteredMember> find_unregistered(const void* begin, std::size_t bytes,
                                                    const void* except);

}  // namespace tessera::nn::detail
