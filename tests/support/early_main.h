// Lets a test start its own binary as another process, which runs code of that test instead of the
// test cases.
#pragma once

namespace tessera::testing {

// Called by main() before anything else. If it returns 0 or more, the process exits with that code.
using EarlyMain = int (*)(int argc, char** argv);

// Registers one during static initialisation: static const EarlyMainRegistration registration(&f);
class EarlyMainRegistration {
 public:
  explicit EarlyMainRegistration(EarlyMain early_main);
};

// Calls all of them and returns the first exit code; -1 if none returned one.
int run_early_mains(int argc, char** argv);

}  // namespace tessera::testing
