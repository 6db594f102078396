#include "tessera/tensor/nearest_name.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace tessera {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // rows[i][j]: distance of the first i bytes of a and the first j of b. Three rows are enough.
  std::vector<std::size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names) {
  if (word.empty()) return std::nullopt;
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, name);
    // With two edits any two letters become any others, so such a distance means nothing.
    if (distance >= least || distance >= std::max(word.size(), name.size())) continue;
    least = distance;
    best = name;
  }
  if (best) return best;
  for (const std::string& name : names)
    if (name.starts_with(word)) return name;
  return std::nullopt;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string_view prefix) {
  const std::optional<std::string> name = nearest_name(word, names);
  return name ? fmt::format("; did you mean {}{}?", prefix, *name) : std::string();
}

}  // namespace tessera
