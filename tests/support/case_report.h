// What the test session has run so far.
#pragma once

namespace tessera::testing {

// The number of test cases that have ended.
int cases_run();

}  // namespace tessera::testing
