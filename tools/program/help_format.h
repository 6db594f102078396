#pragma once

/// How --help looks: options under their headings, each with what is typed behind it, what it does
/// and its default, in lines that fit a terminal.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::tools {

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat();
  std::string make_group(std::string heading, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_usage(const CLI::App* command, std::string name) const override;
  std::string make_description(const CLI::App* command) const override;
};

/// The words of `text` in lines of at most `width` bytes where words allow it, without an end of
/// line behind the last. An empty text is one empty line.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

/// A left and a right column: `left` alone on its line where it is too wide.
std::string two_columns(const std::string& left, const std::string& right);

}  // namespace tessera::tools
