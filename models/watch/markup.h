#pragma once

/// Text for XML, HTML and other formats that accept UTF-8 only.

#include <string>
#include <string_view>

namespace tessera::models::watch {

/// The text as valid UTF-8: invalid bytes, and characters that XML 1.0 does not allow (most control
/// characters), become U+FFFD.
std::string readable(std::string_view text);

/// The same, with < > & " ' escaped for character data and quoted attribute values. Any input gives
/// a document that can be parsed.
std::string escaped(std::string_view text);

/// The number of characters of UTF-8 text: bytes that do not continue a character.
std::size_t character_count(std::string_view text);

/// At most `characters` of the text. If some are left out, the last one is an ellipsis.
std::string shortened(std::string_view text, std::size_t characters);

}  // namespace tessera::models::watch
