#pragma once

/// The commands of the program.

namespace tessera::tools {

/// Does what a command line says, and returns the exit code. Throws CannotStart for one that means
/// nothing, naming what was probably meant, and what the commands throw.
int run_command_line(int argc, char** argv);

}  // namespace tessera::tools
