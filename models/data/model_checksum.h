#pragma once

/// A checksum inside a SentencePiece model file: a last field of the protocol buffer, which readers
/// that do not know it pass over.

#include <string>
#include <string_view>

namespace tessera::models::data {

/// To be put behind a serialized model.
std::string checksum_field(std::string_view model);

/// Throws DataError naming `path` where the model ends with such a field that does not fit what
/// stands before it. One without a field passes: it was made elsewhere.
void check_checksum_field(std::string_view model, const std::string& path, std::string_view where);

}  // namespace tessera::models::data
