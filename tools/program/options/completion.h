#pragma once

/// `tessera completion`: scripts that complete the program's command line in a shell.

#include <string>
#include <vector>

namespace tessera::tools {

/// An option, or a positional argument if it has no name.
struct CompletedOption {
  std::string name;   ///< "--device"; empty: an argument
  std::string value;  ///< its values: "cpu|cuda", "bytes|PATH", "N"; empty: a flag
};

/// A command, and the words that may follow it.
struct CompletedCommand {
  std::string path;                ///< "tessera train mlp"
  std::vector<std::string> below;  ///< names of commands
  std::vector<CompletedOption> options;
};

/// The supported shells: bash, zsh.
const std::vector<std::string>& completion_shells();

/// A script for the shell. It completes names of commands and options, values of options whose text
/// is "a|b|c", and file names where the text contains PATH. Throws InvalidArgument for another
/// shell.
std::string completion_script(const std::vector<CompletedCommand>& commands,
                              const std::string& shell);

}  // namespace tessera::tools
