#include "tessera/tensor/kernels/cuda/loaded_library.h"

#include <dlfcn.h>

#include "tessera/tensor/check.h"

namespace tessera::cuda {

// dlmopen, because the sanitizers replace dlopen by a function of their own library, which does not
// search this program's RUNPATH.
LoadedLibrary::LoadedLibrary(const char* where, const char* file, const char* advice)
    : where_(where),
      file_(file),
      advice_(advice),
      handle_(dlmopen(LM_ID_BASE, file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr)
    throw_error<DeviceError>(where, "cannot load {}: {}; {}", file, dlerror(), advice);
}

void* LoadedLibrary::address(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr)
    throw_error<DeviceError>(where_, "{} has no function {}: {}; {}", file_, name, dlerror(),
                             advice_);
  return found;
}

}  // namespace tessera::cuda
