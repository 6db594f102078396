// The device of the test: TESSERA_TEST_DEVICE, "cpu" (the default) or "cuda". main() makes it the
// default device of new tensors.
#pragma once

#include <cstdlib>
#include <string_view>

#include "tessera/tensor/device.h"

namespace tessera::testing {

inline Device test_device() {
  const char* name = std::getenv("TESSERA_TEST_DEVICE");
  const bool cuda = name != nullptr && std::string_view(name) == "cuda";
  return {cuda ? DeviceType::kCuda : DeviceType::kCpu, 0};
}

}  // namespace tessera::testing
