#include "tessera/tensor/ops/promotion.h"

#include <array>
#include <optional>

namespace tessera {
namespace {

using Class = std::optional<DType>;

void join(Class& in, DType dtype) { in = in ? promote(*in, dtype) : dtype; }

// The dtype of two classes of operands; between dtypes of one kind the first class decides.
Class combine(const Class& higher, const Class& lower) {
  if (!higher || !lower) return higher ? higher : lower;
  if (is_floating(*higher)) return higher;
  return *higher == DType::kBool || is_floating(*lower) ? promote(*higher, *lower) : *higher;
}

}  // namespace

DType result_dtype(std::initializer_list<TensorOrNumber> operands) {
  Class with_dims, without_dims, numbers;
  for (const TensorOrNumber& operand : operands) {
    const bool has_dims = operand.is_tensor() && operand.tensor().ndim() > 0;
    join(has_dims ? with_dims : operand.is_tensor() ? without_dims : numbers, operand.dtype());
  }
  return combine(with_dims, combine(without_dims, numbers)).value_or(DType::kF32);
}

}  // namespace tessera
