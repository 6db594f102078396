// Texts for tests of tokenizers and readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::testing {

// The UTF-8 of a code point.
std::string utf8_of(std::uint32_t code_point);

// English-like lines with indentation and empty lines, about `bytes` bytes; deterministic in the
// seed.
std::string plain_text(std::size_t bytes, unsigned seed = 1);

// For rapidcheck properties: any UTF-8 text. Runs of letters, spaces, line ends, control
// characters, characters that SentencePiece reserves, emoji, names of its pieces, and arbitrary
// code points. Sometimes empty, sometimes only spaces.
std::string random_text();

}  // namespace tessera::testing
