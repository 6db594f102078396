#pragma once

/// A promise to refuse rather than to give different bits: in deterministic mode an operation that
/// has no fixed order of work on a device throws, by name.
///
/// Everything that Tessera computes on the CPU has a fixed order, whatever the mode: see "Equal
/// bits" in kernels/README.md. What has none is published in unordered_operations().

#include <span>
#include <string_view>

#include "tessera/tensor/device.h"

namespace tessera {

/// For the whole process; off at the start. Any thread.
void set_deterministic(bool on);
bool deterministic();

/// An operation (or kernel) that may add in another order each time on devices of this type.
struct UnorderedOperation {
  std::string_view name;
  DeviceType device;
};
/// All of them. Empty: there is none today.
std::span<const UnorderedOperation> unordered_operations();

/// Called by what issues an operation. Throws StateError in deterministic mode when the list has it
/// for this type of device.
void require_fixed_order(std::string_view operation, Device device,
                         std::span<const UnorderedOperation> list = unordered_operations());

}  // namespace tessera
