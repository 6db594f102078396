// Saying that a test case could not run here. Catch2 v2 has no notion of it.
#pragma once

#include <string>

namespace tessera::testing {

// Records the running test case as skipped and prints "SKIPPED: <reason>"; return from the case
// after it.
void skip(const std::string& reason);

}  // namespace tessera::testing
