#pragma once

/// How --help looks: lines that fit a terminal.

#include <string>
#include <vector>

namespace tessera::tools {

/// The words of `text` in lines of at most `width` bytes where words allow it, without an end of
/// line behind the last. An empty text is one empty line.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

/// The words of `text` in lines as wide as help is.
std::string paragraph(const std::string& text);

/// A left and a right column: `left` alone on its line where it is too wide.
std::string two_columns(const std::string& left, const std::string& right);

}  // namespace tessera::tools
