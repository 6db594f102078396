#pragma once

/// Texts for people: numbers, and the layout of --help in lines that fit a terminal.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// Numbers as text for people.
std::string with_commas(std::int64_t value);  ///< "10,770,816"
std::string short_count(double value);        ///< "812", "10.8 k", "124.4 M", "6.7 B"
std::string short_bytes(double bytes);        ///< "812 B", "43.1 MB", "1.5 TB": powers of 1000
std::string short_time(double seconds);       ///< "0:07", "1:02:03", rounded up

/// The layout of --help: lines that fit a terminal.

/// The words of `text` in lines of at most `width` bytes where words allow it, without a final
/// newline. An empty text is one empty line.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

/// The words of `text` in lines of the width of --help.
std::string paragraph(const std::string& text);

/// A left and a right column. `left` has a line of its own if it is too wide.
std::string two_columns(const std::string& left, const std::string& right);

}  // namespace tessera::tools
