#pragma once

/// For errors about unknown names: the valid name that is closest to the one that was given.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// The smallest number of edits that turn one text into the other. An edit adds, drops or replaces
/// a byte, or swaps two neighbours (Damerau-Levenshtein; no byte is edited twice).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name closest to `word`, the first of several; nothing if more than a third of its bytes, and
/// more than two, would have to change. A name that begins with `word` counts as close.
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names);

/// "; did you mean NAME?", or nothing. `prefix` is put before the name: "--".
std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string_view prefix = "");

}  // namespace tessera
