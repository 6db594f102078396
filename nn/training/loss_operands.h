#pragma once

/// What losses share: checks, the dtype that they compute in, and reductions. For nn's own .cc files.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/nn.h"

namespace tessera::nn {

/// The operands as a loss computes with them, with 16 bits in f32.
struct LossOperands {
  Variable input;
  Variable target;

  /// A constant in the dtype that is computed with.
  Tensor constant(const Tensor& tensor) const;
  /// Another operand in it.
  Variable in_dtype(const Variable& x) const { return as(x, input.dtype()); }
  static Variable reduced(const Variable& values, LossReduction reduction);

  static Variable as(const Variable& x, DType dtype);
};

/// Throws InvalidArgument for other dtypes than floating ones.
LossOperands floating_operand(const char* where, const Variable& input);
/// The same for both, and for shapes that differ.
LossOperands operands_of(const char* where, const Variable& input, const Variable& target);
/// A weight that multiplies the values of a loss. Throws InvalidArgument unless it is floating and expands to the
/// input's shape.
Variable expanded_weight(const char* where, const char* name, const Tensor& weight,
                         const LossOperands& x);
/// Throws InvalidArgument unless the weight is undefined, or floating of shape [classes].
void check_class_weight(const char* where, const Tensor& weight, std::int64_t classes);

}  // namespace tessera::nn
