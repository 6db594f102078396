// A test binary that a test starts as another process does not run the tests: it does what that
// test asks.
#pragma once

namespace tessera::testing {

// Called by main() before anything else. An answer of 0 or more ends the process with it.
using EarlyMain = int (*)(int argc, char** argv);

// Registers one at static initialisation: static const EarlyMainRegistration registration(&f);
class EarlyMainRegistration {
 public:
  explicit EarlyMainRegistration(EarlyMain early_main);
};

// Asks all of them; -1 when none has an answer.
int run_early_mains(int argc, char** argv);

}  // namespace tessera::testing
