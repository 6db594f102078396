#pragma once

/// Texts in JSON that is written piece by piece.

#include <string>
#include <string_view>

namespace tessera::distributed {

/// The text as a JSON string, in quotes. Quotes, backslashes and control characters are escaped.
/// Bytes that are no UTF-8 become U+FFFD: one for each beginning of a character that does not go on
/// (Unicode, section 3.9, "Substitution of Maximal Subparts"), and for each byte that begins none.
std::string json_text(std::string_view text);

}  // namespace tessera::distributed
