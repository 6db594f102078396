// Decides whether a test that needs GPUs can run here.
#pragma once

namespace tessera::testing {

// The number of CUDA devices of the driver; 0 without a driver.
int gpu_count();

enum class GpuGate { kRun, kSkip, kFail };

// Compares the GPUs found with those needed. If there are too few: skip, with the numbers, or fail
// if `required` (the value of TESSERA_REQUIRE_GPUS, null if unset) is at least the number needed.
GpuGate gpu_gate(int found, int needed, const char* required);

}  // namespace tessera::testing
