#pragma once

/// The command line of the program: every command with its options, and what is said about one that
/// means nothing.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tools/program/eval_command.h"
#include "tessera/tools/program/generate_command.h"
#include "tessera/tools/program/preset_list.h"
#include "tessera/tools/program/tokenize_command.h"
#include "tessera/tools/program/train_options.h"

namespace tessera::tools {

/// The options object of a command, and the table that is bound to it.
template <class Options>
struct Command {
  Options options;
  OptionTable table;
  CLI::App* app = nullptr;
};

/// Parses and runs one command line.
class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// The exit code. Throws CannotStart for a command line that means nothing, naming what was
  /// probably meant, and what the commands throw.
  int run(int argc, char** argv);

  const CLI::App& app() const { return app_; }
  /// The table of `tessera train MODEL`, for tests.
  const OptionTable& train_table(const std::string& model) const;

 private:
  void add_train();
  template <class Options>
  CLI::App* add_command(Command<Options>& command, CLI::App& above, const std::string& name,
                        const std::string& description);
  [[noreturn]] void explain(const CLI::ParseError& error, int argc, char** argv) const;
  std::string command_name() const;
  int run_train(int argc, char** argv);

  CLI::App app_;
  Command<ListOptions> train_;
  std::vector<std::unique_ptr<Command<TrainOptions>>> models_;
  Command<GenerateOptions> generate_;
  Command<EvalOptions> eval_;
  Command<TokenizeCommandOptions> tokenize_;
  CLI::App* completion_ = nullptr;
  std::string shell_;
};

}  // namespace tessera::tools
