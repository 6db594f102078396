#pragma once

/// The checksum of TFRecords.

#include <cstdint>
#include <string_view>

namespace tessera::tools {

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
std::uint32_t crc32c(std::string_view bytes);

/// As TFRecords store it, so that the checksum of data with checksums in it is no constant:
/// rotated right by 15 bits, plus a constant. Format: tensorflow/core/lib/hash/crc32c.h.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tessera::tools
