#pragma once

/// The differentiable counterparts of tensor/ops/quantile.h: the gradient goes to the two elements
/// beside the quantile. Twice.

#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/quantile.h"

namespace tessera {

Variable quantile(const Variable& x, double q, const QuantileOptions& options = {});
Variable quantile(const Variable& x, const std::vector<double>& q,
                  const QuantileOptions& options = {});

}  // namespace tessera
