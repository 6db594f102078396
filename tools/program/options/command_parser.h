#pragma once

/// Parses the command line: commands, nested commands, and their options. Prints --help and
/// explains invalid words. Only command_parser.cc includes CLI11.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/models/runs/option_table.h"
#include "tessera/tools/program/options/completion.h"

namespace CLI {
class App;
}

namespace tessera::tools {

/// A positional argument of a command.
struct Argument {
  std::string name;     ///< for --help
  std::string value;    ///< the values it takes: "bash|zsh"
  std::string meaning;  ///< for --help
};

class CommandParser {
 public:
  CommandParser();
  ~CommandParser();
  CommandParser(const CommandParser&) = delete;
  CommandParser& operator=(const CommandParser&) = delete;

  // `path` is the command as typed: "train", and inside it "train mlp".

  /// Adds a command with the options of a table. The table gets the words that were typed and must
  /// stay at its address.
  void add(const std::string& path, const std::string& description,
           models::runs::OptionTable& table);
  /// Adds a command with one positional argument, which is written to `target`.
  void add(const std::string& path, const std::string& description, const Argument& argument,
           std::string& target);
  /// Both.
  void add(const std::string& path, const std::string& description, const Argument& argument,
           std::string& target, models::runs::OptionTable& table);

  /// Returns the path of the command that was typed, or nothing after it printed --help or
  /// --version. Throws CannotStart for invalid words, suggesting the closest valid one.
  std::optional<std::string> parse(int argc, char** argv);

  /// All commands, `tessera` itself first.
  std::vector<CompletedCommand> commands() const;

 private:
  CLI::App& add(const std::string& path, const std::string& description);

  std::unique_ptr<CLI::App> app_;
};

}  // namespace tessera::tools
