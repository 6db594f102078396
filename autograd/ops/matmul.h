#pragma once

/// The differentiable counterparts of tensor/ops/matmul.h: same names, shapes, dtypes and errors,
/// on Variable. All derivatives are differentiable again ("twice").
///
/// A gradient that is one product is written straight into the leaf's slot, also into one of f32
/// where the operands are of 16 bits; then it is never rounded to them.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/matmul.h"

namespace tessera {

/// Gradients are summed over broadcast dims.
Variable matmul(const Variable& a, const Variable& b);
/// With a constant.
inline Variable matmul(const Variable& a, const Tensor& b) { return matmul(a, Variable(b)); }
inline Variable matmul(const Tensor& a, const Variable& b) { return matmul(Variable(a), b); }
/// bias may be undefined. Backward keeps x, weight and what the activation was applied to (for
/// kRelu its result instead). `pitch`: of the rows of the result, and of the kept operand.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {},
                ActivationKind activation = ActivationKind::kNone,
                RowPitch pitch = RowPitch::kPacked);

Variable bmm(const Variable& a, const Variable& b);
Variable addmm(const Variable& c, const Variable& a, const Variable& b,
               const AddmmOptions& options = {});
Variable baddbmm(const Variable& c, const Variable& a, const Variable& b,
                 const AddmmOptions& options = {});
Variable mv(const Variable& a, const Variable& x);
Variable dot(const Variable& a, const Variable& b);
Variable outer(const Variable& a, const Variable& b);

}  // namespace tessera
