#pragma once

/// Text inside XML and HTML, and in other places that take UTF-8 only.

#include <string>
#include <string_view>

namespace tessera::tools {

/// The text as UTF-8: bytes that are none, and characters that XML 1.0 has no room for (most
/// control characters), become U+FFFD.
std::string readable(std::string_view text);

/// The same as character data or as the value of an attribute in quotes: < > & " ' are escaped.
/// Any bytes give a document that can be parsed.
std::string escaped(std::string_view text);

/// Characters of UTF-8 text: bytes that do not continue one.
std::size_t character_count(std::string_view text);

/// At most `characters` of the text; where some are left out, the last one is an ellipsis.
std::string shortened(std::string_view text, std::size_t characters);

}  // namespace tessera::tools
