#pragma once

/// Copies of tensors between devices.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// Returns x if it is on `device` already, else a contiguous copy there. On the null device the
/// copy has a shape only. From the CPU to a GPU the copy is issued on the GPU's current stream and
/// the host continues; from a GPU to the CPU the host waits for the copy. Throws StateError for a
/// tensor of the null device, which has no elements, and whatever allocation on `device` throws.
Tensor to_device(const Tensor& x, Device device);

/// Copies x into out: both contiguous, with the same shape and dtype, on two devices that hold
/// elements. Waits like to_device(). Between a GPU and pinned memory it does not wait: the copy is
/// issued on the GPU's current stream, and the host waits when it next accesses the pinned tensor.
/// Throws InvalidArgument for tensors that do not match.
void transfer_(const Tensor& out, const Tensor& x);

}  // namespace tessera
