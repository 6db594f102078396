#pragma once

/// A checksum inside a SentencePiece model file: an extra last field of the protocol buffer, which
/// other readers ignore.

#include <string>
#include <string_view>

namespace tessera::models::data {

/// The field to append to a serialized model.
std::string checksum_field(std::string_view model);

/// Throws DataError naming `path` if the model ends with such a field whose checksum is wrong. A
/// model without the field passes: another program made it.
void check_checksum_field(std::string_view model, const std::string& path, std::string_view where);

}  // namespace tessera::models::data
