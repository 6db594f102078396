#pragma once

/// `tessera completion`: what a shell needs to complete the program's command line.

#include <string>
#include <vector>

namespace tessera::tools {

/// An option, or an argument without a name.
struct CompletedOption {
  std::string name;   ///< "--device"; empty: an argument
  std::string value;  ///< what is typed there: "cpu|cuda", "bytes|PATH", "N"; empty: nothing
};

/// A command, and what may stand behind it.
struct CompletedCommand {
  std::string path;                ///< "tessera train mlp"
  std::vector<std::string> below;  ///< names of commands
  std::vector<CompletedOption> options;
};

/// The shells there is a script for: bash, zsh.
const std::vector<std::string>& completion_shells();

/// A script for the shell: names of commands and options, the values of options whose text is
/// "a|b|c", file names behind those whose text is PATH. Throws InvalidArgument for a shell that is
/// not among them.
std::string completion_script(const std::vector<CompletedCommand>& commands,
                              const std::string& shell);

}  // namespace tessera::tools
