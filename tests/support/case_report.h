// What the test session has run so far.
#pragma once

#include <string>

namespace tessera::testing {

// The number of test cases that have ended.
int cases_run();

// A failure of the case that runs now is repeated with this setting, "NAME=VALUE"; the report of
// the failure prints it as part of the command.
void repeat_with(const std::string& setting);

}  // namespace tessera::testing
