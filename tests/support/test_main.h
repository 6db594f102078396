#pragma once

/// What a test can ask of the main function that all tests have.

#include <cstdlib>
#include <string>
#include <string_view>

#include "tessera/tensor/device.h"

namespace tessera::testing {

// Marks a test case as skipped, which Catch2 v2 does not support.

// Records the running test case as skipped and prints "SKIPPED: <reason>". The case must return
// after it.
void skip(const std::string& reason);

// The device of the test: TESSERA_TEST_DEVICE, "cpu" (the default) or "cuda". main() makes it the
// default device of new tensors.
inline Device test_device() {
  const char* name = std::getenv("TESSERA_TEST_DEVICE");
  const bool cuda = name != nullptr && std::string_view(name) == "cuda";
  return {cuda ? DeviceType::kCuda : DeviceType::kCpu, 0};
}

// Decides whether a test that needs GPUs can run here.

// The number of CUDA devices of the driver; 0 without a driver.
int gpu_count();

enum class GpuGate { kRun, kSkip, kFail };

// Compares the GPUs found with those needed. If there are too few: skip, with the numbers, or fail
// if `required` (the value of TESSERA_REQUIRE_GPUS, null if unset) is at least the number needed.
GpuGate gpu_gate(int found, int needed, const char* required);

// Lets a test start its own binary as another process, which runs code of that test instead of the
// test cases.

// Called by main() before anything else. If it returns 0 or more, the process exits with that code.
using EarlyMain = int (*)(int argc, char** argv);

// Registers one during static initialisation: static const EarlyMainRegistration registration(&f);
class EarlyMainRegistration {
 public:
  explicit EarlyMainRegistration(EarlyMain early_main);
};

// Calls all of them and returns the first exit code; -1 if none returned one.
int run_early_mains(int argc, char** argv);

// The test cases that this session has run so far.

// The number of test cases that have ended.
int cases_run();

// Adds a setting, "NAME=VALUE", to the command that the report prints for a failure of the current
// case.
void repeat_with(const std::string& setting);

}  // namespace tessera::testing
