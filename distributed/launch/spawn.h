#pragma once

/// Starts the process of a rank, and tells it through environment variables which rank it is.

#include <sys/types.h>
#include <string>
#include <vector>

#include "tessera/distributed/store/authentication.h"

namespace tessera::distributed {

/// How a process that launch() started learns that it is a rank: environment variables.
struct RankEnvironment {
  int rank = 0;
  int size = 0;
  int ranks_per_node = 0;
  int call = 0;            ///< which launch() call of the process it belongs to, from 1
  std::string folder{};    ///< what the ranks of this node share with the parent
  std::string endpoint{};  ///< of the store where the nodes' ranks find each other; with one node
                           ///< empty: they do so in the folder
  std::string address = "127.0.0.1";  ///< where the ranks of this node listen
  Credentials credentials{};          ///< by which the processes of the run know each other
};

/// Null in a process that is no rank. The variables are read and removed at the first call, so that
/// programs which a rank starts are no ranks.
const RankEnvironment* rank_environment();

/// This process's environment with the rank's variables, as NAME=value, and without the one that
/// holds the user's secret: only this user and root can read a process's environment, but what a
/// rank starts has no need of it.
std::vector<std::string> environment_with(const RankEnvironment& environment);

/// Descriptors that become a process's standard output and standard error; they may be equal.
/// -1: it has this process's.
struct ChildStreams {
  int out = -1;
  int err = -1;
};

struct ChildSetup {
  ChildStreams streams{};
  /// The cores that it may run on, as far as the system allows it; empty: this thread's.
  std::vector<int> cores{};
};

/// Starts the running binary once more, with these arguments (the first is the program's name),
/// this environment, on these streams and cores. The new process is killed when the calling thread
/// ends, so call it from the main thread. Throws Error when the system refuses.
pid_t spawn_self(std::vector<std::string> arguments, std::vector<std::string> environment,
                 const ChildSetup& setup = {});

}  // namespace tessera::distributed
