// The main function of every test: a Catch2 session that fails if no test case ran, applies Bazel's
// --test_filter, and skips (or fails, as configured) if GPUs are missing.

#include "tessera/tests/support/test_main.h"

#include "tessera/tools/cuda/device_count.h"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using tessera::testing::GpuGate;

// Reads TESSERA_TEST_GPUS, the number of GPUs the test needs.
GpuGate pass_gpu_gate() {
  const char* needed_text = std::getenv("TESSERA_TEST_GPUS");
  const int needed = needed_text == nullptr ? 0 : std::atoi(needed_text);
  if (needed == 0) return GpuGate::kRun;
  const int found = tessera::testing::gpu_count();
  const char* required = std::getenv("TESSERA_REQUIRE_GPUS");
  const GpuGate gate = tessera::testing::gpu_gate(found, needed, required);
  if (gate == GpuGate::kSkip)
    std::printf("SKIPPED: needs %d GPU%s, found %d\n", needed, needed == 1 ? "" : "s", found);
  if (gate == GpuGate::kFail)
    std::printf("needs %d GPU%s, found %d, and TESSERA_REQUIRE_GPUS=%s does not allow to skip\n",
                needed, needed == 1 ? "" : "s", found, required);
  return gate;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::set_default_device(tessera::testing::test_device());
  if (const int answer = tessera::testing::run_early_mains(argc, argv); answer >= 0) return answer;
  switch (pass_gpu_gate()) {
    case GpuGate::kSkip:
      return 0;
    case GpuGate::kFail:
      return 1;
    case GpuGate::kRun:
      break;
  }
  Catch::Session session;
  if (const int error = session.applyCommandLine(argc, argv); error != 0) return error;
  if (const char* filter = std::getenv("TESTBRIDGE_TEST_ONLY"))
    session.configData().testsOrTags.emplace_back(filter);
  const int failures = session.run();
  const auto& config = session.configData();
  const bool only_lists = config.listTests || config.listTags || config.listReporters ||
                          config.listTestNamesOnly || config.showHelp;
  if (only_lists) return 0;  // Catch2 returns the number of lines that it listed
  if (failures == 0 && tessera::testing::cases_run() == 0) {
    std::printf("no test case ran\n");
    return 1;
  }
  return failures;
}

namespace tessera::testing {

int gpu_count() { return cuda::device_count(); }

GpuGate gpu_gate(int found, int needed, const char* required) {
  if (found >= needed) return GpuGate::kRun;
  const bool promised = required != nullptr && std::atoi(required) >= needed;
  return promised ? GpuGate::kFail : GpuGate::kSkip;
}

namespace {

std::vector<EarlyMain>& registered() {
  static std::vector<EarlyMain> list;
  return list;
}

}  // namespace

EarlyMainRegistration::EarlyMainRegistration(EarlyMain early_main) {
  registered().push_back(early_main);
}

int run_early_mains(int argc, char** argv) {
  for (EarlyMain early_main : registered()) {
    if (const int answer = early_main(argc, argv); answer >= 0) return answer;
  }
  return -1;
}

}  // namespace tessera::testing
