#pragma once

/// The differentiable counterparts of tensor/ops/einsum.h. All twice. In an AutocastGuard operands are cast as those of
/// matmul.

#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/einsum.h"

namespace tessera {

Variable einsum(std::string_view equation, const std::vector<Variable>& operands);
Variable tensordot(const Variable& a, const Variable& b, int dims = 2);
Variable tensordot(const Variable& a, const Variable& b, const DimList& dims_a,
                   const DimList& dims_b);
Variable inner(const Variable& a, const Variable& b);

}  // namespace tessera
