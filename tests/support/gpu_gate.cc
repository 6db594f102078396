#include "tessera/tests/support/gpu_gate.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tessera::testing {

int gpu_count() {
  if (!TESSERA_CUDA) return 0;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 0;
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  if (init == nullptr || get_count == nullptr || init(0) != 0 || get_count(&count) != 0) return 0;
  return count;
}

GpuGate gpu_gate(int found, int needed, const char* required) {
  if (found >= needed) return GpuGate::kRun;
  const bool promised = required != nullptr && std::atoi(required) >= needed;
  return promised ? GpuGate::kFail : GpuGate::kSkip;
}

}  // namespace tessera::testing
