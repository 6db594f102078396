#pragma once

/// The differentiable counterparts of tensor/ops/products.h. All twice. In an AutocastGuard operands are cast as those of
/// matmul, but those of kron and cross are not, and of cov and corrcoef in f32.

#include <cstdint>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/products.h"

namespace tessera {

Variable addbmm(const Variable& c, const Variable& a, const Variable& b,
                const AddmmOptions& options = {});
Variable addmv(const Variable& c, const Variable& a, const Variable& x,
               const AddmmOptions& options = {});
Variable addr(const Variable& c, const Variable& a, const Variable& b,
              const AddmmOptions& options = {});
Variable vdot(const Variable& a, const Variable& b);
Variable kron(const Variable& a, const Variable& b);
Variable cross(const Variable& a, const Variable& b, int dim = -1);
Variable matrix_power(const Variable& x, std::int64_t power);
Variable multi_dot(const std::vector<Variable>& matrices);
Variable cov(const Variable& x, double correction = 1);
/// The gradient of a coefficient that rounding puts outside [-1, 1] is 0.
Variable corrcoef(const Variable& x);

}  // namespace tessera
