#include "tessera/nn/training/loss_operands.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

DType at_least_f32(DType dtype) { return dtype == DType::kF64 ? dtype : DType::kF32; }

}  // namespace

Tensor LossOperands::constant(const Tensor& tensor) const { return cast(tensor, input.dtype()); }

Variable LossOperands::as(const Variable& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(x, dtype);
}

Variable LossOperands::reduced(const Variable& values, LossReduction reduction) {
  switch (reduction) {
    case LossReduction::kNone:
      return values;
    case LossReduction::kMean:
      return mean(values);
    case LossReduction::kSum:
      return sum(values);
  }
  return values;
}

LossOperands floating_operand(const char* where, const Variable& input) {
  TESSERA_CHECK(is_floating(input.dtype()), where, "input is {}; losses take floating dtypes",
                dtype_name(input.dtype()));
  return {.input = LossOperands::as(input, at_least_f32(input.dtype())), .target = {}};
}

LossOperands operands_of(const char* where, const Variable& input, const Variable& target) {
  TESSERA_CHECK(is_floating(input.dtype()) && is_floating(target.dtype()), where,
                "input is {} and target {}; losses take floating dtypes", dtype_name(input.dtype()),
                dtype_name(target.dtype()));
  TESSERA_CHECK(input.shape() == target.shape(), where,
                "input has shape {} and target {}; reshape or expand one of them",
                input.shape().str(), target.shape().str());
  const DType dtype = at_least_f32(promote(input.dtype(), target.dtype()));
  return {.input = LossOperands::as(input, dtype), .target = LossOperands::as(target, dtype)};
}

void check_class_weight(const char* where, const Tensor& weight, std::int64_t classes) {
  TESSERA_CHECK(
      !weight.defined() || (is_floating(weight.dtype()) && weight.shape() == Shape{classes}), where,
      "weight is {} of shape {}; it is floating, one for each of {} classes",
      dtype_name(weight.dtype()), weight.shape().str(), classes);
}

Variable expanded_weight(const char* where, const char* name, const Tensor& weight,
                         const LossOperands& x) {
  const Shape& shape = x.input.shape();
  bool fits = is_floating(weight.dtype()) && weight.ndim() <= shape.ndim();
  for (int d = 1; fits && d <= weight.ndim(); ++d)
    fits = weight.dim(-d) == 1 || weight.dim(-d) == shape[shape.ndim() - d];
  TESSERA_CHECK(fits, where, "{} is {} of shape {}; it is floating and expands to the input's, {}",
                name, dtype_name(weight.dtype()), weight.shape().str(), shape.str());
  return Variable(x.constant(weight));
}

}  // namespace tessera::nn
