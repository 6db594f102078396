#pragma once

/// TFRecords, the frames of an event file, and their checksum. Format: lib/io/record_writer.h of
/// TensorFlow. Private to this folder.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::models::watch {

/// The bytes between their length and the checksums of both.
std::string tfrecord(std::string_view bytes);

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
std::uint32_t crc32c(std::string_view bytes);

/// The form in TFRecords: rotated right by 15 bits, plus a constant, so that the checksum of data
/// that contains checksums is not constant. Format: tensorflow/core/lib/hash/crc32c.h.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tessera::models::watch
