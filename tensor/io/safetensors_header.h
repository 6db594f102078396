#pragma once

/// For safetensors only: the JSON header as data.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/io/safetensors.h"

namespace tessera::detail {

/// Bytes of the header's length, which stand before it.
inline constexpr std::uint64_t kSafetensorsPrefix = 8;

struct SafetensorsHeader {
  std::vector<SafetensorsInfo> tensors;
  SafetensorsMetadata metadata;
};

/// "BF16" for bf16.
const char* safetensors_dtype_name(DType dtype);

/// The header's text padded with spaces to whole groups of 8 bytes; `begin` and `end` of the
/// tensors count from the first byte of the elements. Throws InvalidArgument for text that is not
/// UTF-8.
std::string safetensors_header_text(const SafetensorsHeader& header);

/// What the header of `path` says, whose `file_bytes` bytes hold the prefix, `text` and the
/// elements. Throws CheckpointError unless the elements fill the rest of the file exactly.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           std::uint64_t file_bytes);

}  // namespace tessera::detail
