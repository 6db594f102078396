#pragma once

/// The differentiable counterparts of tensor/ops/scan.h. All twice; with create_graph the
/// derivatives of cumprod and logcumsumexp take memory for the square of the length of a line.

#include "tessera/autograd/ops/order.h"
#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/scan.h"

namespace tessera {

Variable cumsum(const Variable& x, int dim, const ScanOptions& options = {});
/// Exact where elements are 0.
Variable cumprod(const Variable& x, int dim, const ScanOptions& options = {});
/// The gradient of an element that is -inf is 0.
Variable logcumsumexp(const Variable& x, int dim, const LogcumsumexpOptions& options = {});
/// The gradient goes to the elements that were chosen.
VariableAndIndices cummax(const Variable& x, int dim);
VariableAndIndices cummin(const Variable& x, int dim);

}  // namespace tessera
