// The test cases that this session has run so far.
#pragma once

#include <string>

namespace tessera::testing {

// The number of test cases that have ended.
int cases_run();

// Adds a setting, "NAME=VALUE", to the command that the report prints for a failure of the current
// case.
void repeat_with(const std::string& setting);

}  // namespace tessera::testing
