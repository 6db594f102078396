#pragma once

/// For messages about names that are not known: the one that was probably meant.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera::tools {

/// The fewest changes that make one text of the other, where a change adds, drops or replaces one
/// byte, or swaps two neighbours (Damerau and Levenshtein; no byte is changed twice).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name that `word` is nearest to, the first of equals; nothing where more than a third of its
/// bytes, two at least, would have to change. A name that begins with `word` is near too.
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names);

/// "; did you mean NAME?", or nothing. `prefix` stands before the name: "--".
std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string_view prefix = "");

}  // namespace tessera::tools
