// Texts to test tokenizers and readers with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::testing {

// The UTF-8 of a code point.
std::string utf8_of(std::uint32_t code_point);

// English-like lines with indentation and empty lines, about `bytes` of them; the same for equal
// seeds.
std::string plain_text(std::size_t bytes, unsigned seed = 1);

// For a rapidcheck property: any UTF-8 there is. Runs of letters, spaces, line ends, control
// characters, what SentencePiece keeps for its own use, emoji, names of its pieces, and code points
// from everywhere. Sometimes empty, sometimes spaces alone.
std::string random_text();

}  // namespace tessera::testing
