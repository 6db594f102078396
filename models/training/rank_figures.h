#pragma once

/// For trainers and tasks: numbers of one rank, and of all.

#include <span>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models {

/// Every rank's values, in rank order; equally many on all. Collective; the host waits.
std::vector<double> gather_figures(distributed::ProcessGroup& group,
                                   std::span<const double> values);

/// The value of a 0-d tensor of any floating dtype. The host waits.
double host_value(const Tensor& tensor);

}  // namespace tessera::models
