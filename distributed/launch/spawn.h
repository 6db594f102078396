#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tessera::distributed {

/// Starts the running binary once more, with these arguments (the first is the program's name) and
/// this environment. The new process is killed when the calling thread ends, so call it from the
/// main thread. Throws Error when the system refuses.
pid_t spawn_self(std::vector<std::string> arguments, std::vector<std::string> environment);

}  // namespace tessera::distributed
