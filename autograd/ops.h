#pragma once

/// Differentiable twins of tensor/ops.h: same names, shapes and errors, on Variable. Each
/// derivative stands right below its forward in the .cc files. "twice": the derivative is made of
/// differentiable operations, so create_graph works.

#include <initializer_list>

#include "tessera/autograd/ops_elementwise.h"
#include "tessera/autograd/ops_view.h"
#include "tessera/autograd/variable.h"

namespace tessera {

Variable sum(const Variable& x, std::initializer_list<int> dims = {},
             bool keep_dims = false);  // twice
Variable mean(const Variable& x, std::initializer_list<int> dims = {},
              bool keep_dims = false);                         // twice
Variable sum_to_shape(const Variable& x, const Shape& shape);  // twice

/// Twice. Gradients of leaves are written into their slots.
Variable matmul(const Variable& a, const Variable& b);
/// x W^T + b; bias may be undefined. Gradients of weight and bias are written into their slots.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias);

enum class Reduction : std::uint8_t { kNone, kMean, kSum };
/// Cross entropy of logits [rows, classes] with class indices [rows] (i64), softmax included. kNone
/// -> [rows], else 0-d; the mean of no rows is NaN, their sum 0. See cross_entropy_rows for errors.
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       Reduction reduction = Reduction::kMean);

}  // namespace tessera
