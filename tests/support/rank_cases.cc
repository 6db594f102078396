#include "tessera/tests/support/rank_cases.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>

#include "tessera/tests/support/case_report.h"
#include "tessera/tests/support/gpu_gate.h"
#include "tessera/tests/support/skip.h"

namespace tessera::testing {
namespace {

WorldRun run_on_threads(const RegisteredCase& test, int world) {
  WorldRun run;
  std::mutex mutex;
  const auto body = [&](distributed::World& on) {
    RankTest t(on);
    const auto deliver = [&] {
      std::lock_guard lock(mutex);
      for (const std::string& failure : t.failures())
        run.failures.push_back(fmt::format("rank {}: {}", t.rank(), failure));
    };
    try {
      test.body(t);
    } catch (...) {
      deliver();
      throw;
    }
    deliver();
  };
  run.failure =
      distributed::launch(0, nullptr, rank_launch_options(test.options, world), body).failure;
  return run;
}

// Asserts; on the main thread.
void judge(const RegisteredCase& test, int world, const WorldRun& run) {
  const std::string where = fmt::format("world {} ({}), ", world, test_transport());
  const std::string& expected = test.options.expect_failure;
  std::vector<std::string> wrong = run.failures;
  if (expected.empty() && !run.failure.empty()) wrong.push_back(run.failure);
  if (!expected.empty() && run.failure.find(expected) == std::string::npos)
    wrong.push_back(fmt::format("should fail with \"{}\" but said \"{}\"", expected, run.failure));
  if (wrong.empty()) return;
  // A world that the case does not name may be one that the target does not have either.
  repeat_with(fmt::format(
      "{}={}", test.options.worlds.empty() ? "TESSERA_TEST_WORLDS" : "TESSERA_TEST_ONLY_WORLDS",
      world));
  for (const std::string& failure : wrong) FAIL_CHECK(where << failure);
}

}  // namespace

std::map<std::string, RegisteredCase>& rank_cases() {
  static std::map<std::string, RegisteredCase> map;
  return map;
}

RankCase::RankCase(const char* name, void (*body)(RankTest&), RankTestOptions options) {
  rank_cases()[name] = {body, std::move(options)};
}

std::vector<int> worlds_of(const RegisteredCase& test) {
  std::vector<int> worlds = test.options.worlds.empty() ? test_worlds() : test.options.worlds;
  if (const std::vector<int> only = only_worlds(); !only.empty() && !worlds.empty()) {
    const int smallest = *std::min_element(worlds.begin(), worlds.end());
    std::erase_if(worlds, [&](int world) {
      return std::find(only.begin(), only.end(), world) == only.end();
    });
    if (worlds.empty()) worlds = {smallest};
  }
  if (test_transport() == "nccl")  // each rank has a GPU
    std::erase_if(worlds, [](int world) { return world > gpu_count(); });
  return worlds;
}

void run_rank_case(const std::string& name) {
  const RegisteredCase& test = rank_cases().at(name);
  const std::vector<int> worlds = worlds_of(test);
  if (worlds.empty()) skip(fmt::format("has no world for {} GPUs", gpu_count()));
  for (int world : worlds) {
    judge(test, world,
          test_transport() == "gloo" ? run_on_processes(name, world) : run_on_threads(test, world));
  }
  SUCCEED();
}

}  // namespace tessera::testing
