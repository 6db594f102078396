#pragma once

/// The commands of the program.

namespace tessera::tools {

/// Runs the command of a command line and returns the exit code. Throws CannotStart for an invalid
/// command line, suggesting the closest valid word, and the errors of the command.
int run_command_line(int argc, char** argv);

}  // namespace tessera::tools
