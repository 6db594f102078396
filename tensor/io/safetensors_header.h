#pragma once

/// The JSON header as data. For the safetensors files only.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/io/safetensors.h"

namespace tessera::detail {

/// Size in bytes of the header length at the start of the file.
inline constexpr std::uint64_t kSafetensorsPrefix = 8;

struct SafetensorsHeader {
  std::vector<SafetensorsInfo> tensors;
  SafetensorsMetadata metadata;
};

/// "BF16" for bf16.
const char* safetensors_dtype_name(DType dtype);

/// The header's text, padded with spaces to a multiple of 8 bytes; `begin` and `end` of the tensors
/// count from the first byte of the elements. Throws InvalidArgument for text that is not UTF-8.
std::string safetensors_header_text(const SafetensorsHeader& header);

/// Parses `text`, the header of the file `path`. `file_bytes` is the size of the file: prefix,
/// header and elements. Throws CheckpointError unless the elements fill the rest of the file
/// exactly.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           std::uint64_t file_bytes);

}  // namespace tessera::detail
