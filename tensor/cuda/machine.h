#pragma once

/// The driver and GPUs of this machine, also where they cannot be used.

#include <utility>
#include <vector>

#include "tessera/tensor/cuda/error_meaning.h"

namespace tessera::cuda {

/// Queried once. The first call starts the driver.
const MachineFacts& this_machine();

/// Pairs of GPUs, a first, for which a cannot read b's memory directly. No context is made.
std::vector<std::pair<int, int>> pairs_without_peer_access();

}  // namespace tessera::cuda
