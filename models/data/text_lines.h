#pragma once

/// Where a text may be cut without changing its tokens.

#include <cstddef>
#include <string_view>

namespace tessera::models::data {

/// The end of the line that begins at `begin`: behind its "\n" and those that follow it, so that an
/// empty line belongs to the one above.
std::size_t line_end(std::string_view text, std::size_t begin);

/// The end of the lines from `begin` that together have `bytes` or, by their last line, more;
/// `bytes` is at least 1.
std::size_t lines_end(std::string_view text, std::size_t begin, std::size_t bytes);

}  // namespace tessera::models::data
