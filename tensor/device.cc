#include "tessera/tensor/device.h"

#if defined(TESSERA_CUDA) && TESSERA_CUDA
#include <dlfcn.h>
#endif

namespace tessera {
namespace {

#if defined(TESSERA_CUDA) && TESSERA_CUDA

// The driver is looked up at run time: a program linked against it would not start where there is
// none.
int count_devices() noexcept {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  using Init = int (*)(unsigned);
  using GetCount = int (*)(int*);
  const auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<GetCount>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  if (init == nullptr || get_count == nullptr || init(0) != 0 || get_count(&count) != 0) return 0;
  return count;
}

#else

int count_devices() noexcept { return 0; }

#endif

}  // namespace

int cuda_device_count() {
  static const int count = count_devices();
  return count;
}

}  // namespace tessera
