#include "tessera/tools/program/help_format.h"

#include <fmt/format.h>

#include <sstream>

namespace tessera::tools {
namespace {

constexpr std::size_t kLeft = 30;
constexpr std::size_t kWidth = 100;

bool has_subcommands(const CLI::App& command) {
  return !command.get_subcommands([](const CLI::App*) { return true; }).empty();
}

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

HelpFormat::HelpFormat() { label("OPTIONS", "options"); }

std::string HelpFormat::make_group(std::string heading, bool is_positional,
                                   std::vector<const CLI::Option*> options) const {
  std::string text = heading + ":\n";
  for (const CLI::Option* option : options) text += make_option(option, is_positional);
  return text;
}

std::string HelpFormat::make_option(const CLI::Option* option, bool) const {
  std::string left = option->get_name();
  if (!option->get_option_text().empty()) left += " " + option->get_option_text();
  const std::string value = option->get_default_str();
  const std::string right =
      option->get_description() + (value.empty() ? "" : fmt::format(" [{}]", value));
  return two_columns(left, right);
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  return two_columns(command->get_name(), command->get_description());
}

std::string HelpFormat::make_usage(const CLI::App* command, std::string name) const {
  if (name.empty()) name = command->get_name();
  const std::string word = has_subcommands(*command) ? " COMMAND" : "";
  std::string positionals;
  for (const CLI::Option* option : command->get_options())
    if (option->get_positional()) positionals += " " + option->get_option_text();
  return fmt::format("\nusage: {}{}{} [options]\n\n", name, word, positionals);
}

std::string HelpFormat::make_description(const CLI::App* command) const {
  std::string text;
  for (const std::string& line : wrapped(command->get_description(), kWidth)) text += line + "\n";
  return text;
}

}  // namespace tessera::tools
