#pragma once

/// Reads the words behind `tessera`: commands, commands inside them, and their options. Writes
/// --help, and says what is wrong with words that mean nothing. CLI11 is in command_parser.cc only.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tools/program/options/completion.h"
#include "tessera/tools/program/options/option_table.h"

namespace CLI {
class App;
}

namespace tessera::tools {

/// A word behind a command that is no option.
struct Argument {
  std::string name;     ///< for --help
  std::string value;    ///< what is typed there: "bash|zsh"
  std::string meaning;  ///< for --help
};

class CommandParser {
 public:
  CommandParser();
  ~CommandParser();
  CommandParser(const CommandParser&) = delete;
  CommandParser& operator=(const CommandParser&) = delete;

  // `path` is what is typed for a command: "train", and inside it "train mlp".

  /// A command with the options of a table, which is told what was typed for them and must stay
  /// where it is.
  void add(const std::string& path, const std::string& description, OptionTable& table);
  /// A command with an argument, which is written to `target`.
  void add(const std::string& path, const std::string& description, const Argument& argument,
           std::string& target);

  /// The path of the command that was typed; nothing where --help or --version was, and is
  /// answered. Throws CannotStart for words that mean nothing, naming what was probably meant.
  std::optional<std::string> parse(int argc, char** argv);

  /// All commands, from `tessera` itself on.
  std::vector<CompletedCommand> commands() const;

 private:
  CLI::App& add(const std::string& path, const std::string& description);

  std::unique_ptr<CLI::App> app_;
};

}  // namespace tessera::tools
