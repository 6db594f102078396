#include "tessera/nn/name_pattern.h"

#include <vector>

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

}  // namespace tessera::nn
