#include "tessera/models/data/text_lines.h"

#include <algorithm>

namespace tessera::models::data {

std::size_t line_end(std::string_view text, std::size_t begin) {
  const std::size_t end = text.find('\n', begin);
  return end == std::string_view::npos ? text.size()
                                       : std::min(text.find_first_not_of('\n', end), text.size());
}

std::size_t lines_end(std::string_view text, std::size_t begin, std::size_t bytes) {
  if (text.size() - begin < bytes) return text.size();
  return line_end(text, begin + bytes - 1);
}

}  // namespace tessera::models::data
