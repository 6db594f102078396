// The registered cases of TESSERA_RANK_TEST, and how one is run in one world: what ranks.h leaves
// to its sources.
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

// By name.
std::map<std::string, RegisteredCase>& rank_cases();

// In which worlds the case runs here.
std::vector<int> worlds_of(const RegisteredCase& test);

struct WorldRun {
  std::vector<std::string> failures;  // of checks, with the rank in front
  std::string failure;                // of the run
};

// The case on rank processes. Runs the other cases that can share the launch too, and keeps their
// results until they are asked for.
WorldRun run_on_processes(const std::string& name, int world);

}  // namespace tessera::testing
