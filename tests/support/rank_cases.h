// The registered cases of TESSERA_RANK_TEST, and running one in one world: internal part of
// ranks.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

struct RegisteredCase {
  void (*body)(RankTest&) = nullptr;
  RankTestOptions options;
};

// Keyed by name.
std::map<std::string, RegisteredCase>& rank_cases();

// The world sizes in which the case runs here.
std::vector<int> worlds_of(const RegisteredCase& test);

struct WorldRun {
  std::vector<std::string> failures;  // of checks, beginning with the rank
  std::string failure;                // of the run
};

// Runs the case on rank processes, together with other cases that can share the launch; their
// results are kept until they are requested.
WorldRun run_on_processes(const std::string& name, int world);

}  // namespace tessera::testing
