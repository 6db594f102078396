#pragma once

/// The layout of --help: lines that fit a terminal.

#include <string>
#include <vector>

namespace tessera::tools {

/// The words of `text` in lines of at most `width` bytes where words allow it, without a final
/// newline. An empty text is one empty line.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

/// The words of `text` in lines of the width of --help.
std::string paragraph(const std::string& text);

/// A left and a right column. `left` has a line of its own if it is too wide.
std::string two_columns(const std::string& left, const std::string& right);

}  // namespace tessera::tools
