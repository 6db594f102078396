#pragma once

/// Losses. The cross entropy itself is an operation: autograd/ops.h.

#include <cstdint>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh.h"

namespace tessera::nn {

/// The loss to call backward on when ranks hold different numbers of samples: loss_sum * (ranks
/// along `axis`) / (global count), where loss_sum is the sum over this rank's samples and
/// local_count their number (also 0). After gradients are averaged over the axis, as sharding does,
/// the result is the gradient of the mean over all samples, for any split of the batch. One
/// all-reduce of the counts. Collective.
Variable global_mean(const Variable& loss_sum, std::int64_t local_count, const Mesh& mesh,
                     const std::string& axis = "data");

}  // namespace tessera::nn
