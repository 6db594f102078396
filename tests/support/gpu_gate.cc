#include "tessera/tests/support/gpu_gate.h"

#include <cstdlib>

#include "tessera/tools/cuda/device_count.h"

namespace tessera::testing {

int gpu_count() { return cuda::device_count(); }

GpuGate gpu_gate(int found, int needed, const char* required) {
  if (found >= needed) return GpuGate::kRun;
  const bool promised = required != nullptr && std::atoi(required) >= needed;
  return promised ? GpuGate::kFail : GpuGate::kSkip;
}

}  // namespace tessera::testing
