#pragma once

/// Moving a tensor to another device.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// x itself where it lives there already, else a contiguous copy on `device`. To the null device
/// goes the shape alone. From the CPU to a GPU the copy is issued on the GPU's current stream, and
/// the host goes on; from a GPU to the CPU the host waits for it. Throws StateError for a tensor of
/// the null device, which has no elements to move, and what allocating on `device` throws.
Tensor to_device(const Tensor& x, Device device);

/// Copies x into out: of one shape and dtype, both contiguous, on two devices that have elements.
/// Waits as to_device(), but not between a GPU and pinned memory: then the copy is issued on the
/// GPU's current stream and the host goes on; it waits where it next touches the pinned tensor.
/// Throws InvalidArgument for tensors that do not fit together.
void transfer_(const Tensor& out, const Tensor& x);

}  // namespace tessera
