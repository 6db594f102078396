#include "tessera/nn/name_pattern.h"

#include <algorithm>

namespace tessera::nn {

// Row by row over the pattern: fits[i] says whether the pattern so far covers the first i
// characters of the name. Linear in both, whatever the stars.
bool matches(std::string_view name, std::string_view pattern) {
  std::vector<bool> fits(name.size() + 1, false);
  fits[0] = true;
  for (std::size_t p = 0; p < pattern.size(); ++p) {
    const bool levels = pattern.substr(p, 2) == "**";
    const bool run = pattern[p] == '*';
    if (levels) ++p;
    std::vector<bool> next(name.size() + 1, false);
    if (run) next[0] = fits[0];
    for (std::size_t i = 1; i <= name.size(); ++i) {
      const char c = name[i - 1];
      if (run) {
        next[i] = fits[i] || (next[i - 1] && (levels || c != '.'));
      } else {
        next[i] = fits[i - 1] && (pattern[p] == '?' ? c != '.' : c == pattern[p]);
      }
    }
    fits = std::move(next);
  }
  return fits.back();
}

bool matches_any(std::string_view name, const std::vector<std::string>& patterns) {
  const auto covers = [&](const std::string& pattern) { return matches(name, pattern); };
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), covers);
}

std::vector<std::string> unmatched_patterns(const std::vector<std::string>& patterns,
                                            const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (const std::string& pattern : patterns) {
    const auto fits = [&](const std::string& name) { return matches(name, pattern); };
    if (std::none_of(names.begin(), names.end(), fits))
      texts.push_back("the pattern \"" + pattern + "\" matches no name in it");
  }
  return texts;
}

}  // namespace tessera::nn
