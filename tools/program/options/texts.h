#pragma once

/// Texts for people: lists of words in one text, the valid name closest to an unknown one, numbers,
/// and the layout of --help in lines that fit a terminal.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// Lists of words in one text.

/// The parts between the commas; parts may be empty.
std::vector<std::string> parts_of(const std::string& list);

/// The words with a text between them. (fmt::join formats each word as a value of any type, which
/// takes the compiler most of a second.)
std::string joined(std::span<const std::string> words, std::string_view between);

/// For errors about unknown names: the closest valid name.

/// The smallest number of edits that turn one text into the other. An edit adds, drops or replaces
/// a byte, or swaps two neighbours (Damerau-Levenshtein; no byte is edited twice).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name closest to `word`, the first of several; nothing if more than a third of its bytes, and
/// more than two, would have to change. A name that begins with `word` counts as close.
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names);

/// "; did you mean NAME?", or nothing. `prefix` is put before the name: "--".
std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string_view prefix = "");

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
