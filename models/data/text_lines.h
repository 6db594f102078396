#pragma once

/// Positions at which a text can be split without changing its tokens.

#include <cstddef>
#include <string_view>

namespace tessera::models::data {

/// The end of the line that starts at `begin`: after its "\n" and all "\n" that follow it, so an
/// empty line belongs to the line above.
std::size_t line_end(std::string_view text, std::size_t begin);

/// The end of the last line needed to reach `bytes` bytes from `begin`, or more; `bytes` is at
/// least 1.
std::size_t lines_end(std::string_view text, std::size_t begin, std::size_t bytes);

}  // namespace tessera::models::data
