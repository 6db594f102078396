// Marks a test case as skipped, which Catch2 v2 does not support.
#pragma once

#include <string>

namespace tessera::testing {

// Records the running test case as skipped and prints "SKIPPED: <reason>". The case must return
// after it.
void skip(const std::string& reason);

}  // namespace tessera::testing
