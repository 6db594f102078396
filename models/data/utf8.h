#pragma once

/// UTF-8 as defined by RFC 3629 and table 3-7 of the Unicode Standard.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::models::data {

/// The position of the first invalid byte sequence, or npos. Strict: overlong forms, surrogates,
/// code points above U+10FFFF and truncated characters are invalid. The position is that of the
/// character's first byte.
std::size_t find_invalid_utf8(std::string_view text);

/// The largest position up to `position` at which a character of `text` begins, or its end. `text`
/// is UTF-8.
std::size_t character_begin(std::string_view text, std::size_t position);

}  // namespace tessera::models::data
