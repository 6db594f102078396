#include "tessera/models/runs/words.h"

namespace tessera::models::runs {

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back().push_back(c);
  }
  return parts;
}

std::string joined(std::span<const std::string> words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (&word != words.data()) text += between;
    text += word;
  }
  return text;
}

}  // namespace tessera::models::runs
