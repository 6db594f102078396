#pragma once

/// Differentiable twins of tensor/ops.h: same names, shapes and errors, on Variable. Each
/// derivative stands right below its forward in the .cc files. "twice": the derivative is made of
/// differentiable operations, so create_graph works.

#include <initializer_list>

#include "tessera/autograd/variable.h"

namespace tessera {

/// Elementwise, broadcasting; gradients are summed back to the operands' shapes. All twice.
Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable div(const Variable& a, const Variable& b);
Variable add(const Variable& a, double b);
Variable mul(const Variable& a, double b);
inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }
inline Variable operator+(const Variable& a, double b) { return add(a, b); }
inline Variable operator*(const Variable& a, double b) { return mul(a, b); }
inline Variable operator*(double a, const Variable& b) { return mul(b, a); }

Variable neg(const Variable& x);     // twice
Variable exp(const Variable& x);     // twice
Variable log(const Variable& x);     // twice
Variable sqrt(const Variable& x);    // twice
Variable square(const Variable& x);  // twice
Variable tanh(const Variable& x);    // twice
Variable relu(const Variable& x);
Variable gelu(const Variable& x);
/// To another floating dtype; the gradient is cast back. Twice.
Variable cast(const Variable& x, DType dtype);

/// Views: no copy forward. All twice.
Variable view(const Variable& x, const Shape& shape);
Variable transpose(const Variable& x, int dim0, int dim1);
Variable slice(const Variable& x, int dim, std::int64_t start, std::int64_t end);
Variable expand(const Variable& x, const Shape& shape);

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
