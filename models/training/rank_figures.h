#pragma once

/// For trainers and tasks: gathers numbers of every rank.

#include <span>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models {

/// Every rank's values, in rank order; every rank has the same number. Collective; blocks the host.
std::vector<double> gather_figures(distributed::ProcessGroup& group,
                                   std::span<const double> values);

/// The value of a 0-d tensor of any floating-point dtype. Blocks the host.
double host_value(const Tensor& tensor);

}  // namespace tessera::models
