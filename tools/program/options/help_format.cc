#include "tessera/tools/program/options/help_format.h"

#include <fmt/format.h>

#include <sstream>

namespace tessera::tools {
namespace {

constexpr std::size_t kLeft = 30;
constexpr std::size_t kWidth = 100;

}  // namespace

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string paragraph(const std::string& text) {
  std::string lines;
  for (const std::string& line : wrapped(text, kWidth)) lines += line + "\n";
  return lines;
}

std::string two_columns(const std::string& left, const std::string& right) {
  std::string text = fmt::format("  {:<{}}", left, kLeft - 2);
  bool first = left.size() + 3 <= kLeft;
  if (!first) text += "\n";
  for (const std::string& line : wrapped(right, kWidth - kLeft)) {
    text += first ? line : fmt::format("{:{}}{}", "", kLeft, line);
    text += "\n";
    first = false;
  }
  return text;
}

}  // namespace tessera::tools
