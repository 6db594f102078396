// Whether a test that needs GPUs can run here.
#pragma once

namespace tessera::testing {

// The CUDA devices the driver offers; 0 without a driver.
int gpu_count();

enum class GpuGate { kRun, kSkip, kFail };

// Compares the GPUs found with those needed. Too few: skip with the counts, or fail where
// `required` (the value of TESSERA_REQUIRE_GPUS, null if unset) promises at least as many as are
// needed.
GpuGate gpu_gate(int found, int needed, const char* required);

}  // namespace tessera::testing
