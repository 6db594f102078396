#pragma once

/// The norm of all gradients together, over every rank's shards.

#include <span>

#include "tessera/nn/parameter.h"

namespace tessera::nn {

/// sqrt of the sum of squares of all gradients, as a 0-d f64 tensor equal on every rank. Parameters
/// without a gradient count as zero, tied ones once; each sharded axis is all-reduced once,
/// whatever the number of parameters. Collective.
Tensor grad_norm(std::span<const Parameter> parameters);

}  // namespace tessera::nn
