#pragma once

/// Deterministic mode, as torch.use_deterministic_algorithms: an operation that has no fixed order
/// of work on a device throws, by name, instead of giving different bits from run to run.
///
/// Everything that Tessera computes on the CPU has a fixed order in every mode: see "Equal bits" in
/// kernels/README.md. On a GPU the derivative of attention in 16 bits adds the gradient of the
/// queries in no fixed order, and in deterministic mode does it in a fixed one, which takes longer
/// and more memory. unordered_operations() lists the operations that have none in any mode.

#include <span>
#include <string_view>

#include "tessera/tensor/device.h"

namespace tessera {

/// For the whole process; off by default. Thread-safe.
void set_deterministic(bool on);
bool deterministic();

/// An operation (or kernel) whose order of additions may change from run to run on devices of this
/// type.
struct UnorderedOperation {
  std::string_view name;
  DeviceType device;
};
/// All such operations. Today there are none.
std::span<const UnorderedOperation> unordered_operations();

/// Called wherever an operation is issued. Throws StateError in deterministic mode if `list` has
/// the operation for this type of device.
void require_fixed_order(std::string_view operation, Device device,
                         std::span<const UnorderedOperation> list = unordered_operations());

}  // namespace tessera
