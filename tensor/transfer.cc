#include "tessera/tensor/transfer.h"

#include "tessera/tensor/check.h"

namespace tessera {

Tensor to_device(const Tensor& x, Device device) {
  TESSERA_CHECK(x.defined(), "to_device", "the tensor is undefined");
  if (x.device() == device) return x;
  TESSERA_CHECK_AS(StateError, !x.device().is_null(), "to_device",
                   "a tensor of shape {} on the null device has no elements to move to {}",
                   x.shape().str(), device.str());
  TESSERA_CHECK(device.is_null(), "to_device", "there is no way from {} to {} in this build",
                x.device().str(), device.str());
  return Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = device});
}

}  // namespace tessera
