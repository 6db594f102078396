#pragma once

/// `tessera completion`: what a shell needs to complete the program's command line.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::tools {

/// The shells there is a script for: bash, zsh.
const std::vector<std::string>& completion_shells();

/// A script for the shell, made of the commands and options that `app` has: names of commands and
/// options, the values of options whose text is "a|b|c", file names behind those whose text is
/// PATH. Throws InvalidArgument for a shell that is not among them.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace tessera::tools
