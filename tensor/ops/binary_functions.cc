// Functions of two tensors, and what replaces numbers that are not finite.
#include <limits>

#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {

using ops::ResultKind;

namespace {

constexpr double kPi = 3.14159265358979323846;

Tensor function(const char* name, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op) {
  return ops::binary(name, a, b, op, ResultKind::kFloating);
}

Tensor bitwise(const char* name, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op,
               const Tensor* out = nullptr) {
  ops::check_integers(name, {a, b});
  return ops::binary(name, a, b, op, ResultKind::kPromoted, out);
}

Tensor shift(const char* name, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op) {
  ops::check_integers(name, {a, b});
  TESSERA_CHECK(result_dtype({a, b}) != DType::kBool, name,
                "a bool has no bits to shift; cast one of them to an integer");
  return ops::binary(name, a, b, op, ResultKind::kPromoted);
}

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return std::numeric_limits<float>::max();
    case DType::kBF16:
      return 0x1.fep127;
    case DType::kF16:
      return 65504;
    case DType::kF64:
    case DType::kI64:
    case DType::kI32:
    case DType::kU8:
    case DType::kBool:
      break;
  }
  return std::numeric_limits<double>::max();
}

Tensor replaced(const char* name, const Tensor& x, const NanToNumOptions& options,
                const Tensor* out = nullptr) {
  const double largest = largest_finite(x.dtype());
  return ops::ternary(name,
                      {x, options.posinf.value_or(largest), options.neginf.value_or(-largest)},
                      TernaryOp::kNanToNum, out, options.nan);
}

}  // namespace

Tensor atan2(const TensorOrNumber& a, const TensorOrNumber& b) {
  return function("atan2", a, b, BinaryOp::kAtan2);
}
Tensor hypot(const TensorOrNumber& a, const TensorOrNumber& b) {
  return function("hypot", a, b, BinaryOp::kHypot);
}
Tensor copysign(const TensorOrNumber& a, const TensorOrNumber& b) {
  return function("copysign", a, b, BinaryOp::kCopysign);
}
Tensor logaddexp(const TensorOrNumber& a, const TensorOrNumber& b) {
  return function("logaddexp", a, b, BinaryOp::kLogAddExp);
}
Tensor logaddexp2(const TensorOrNumber& a, const TensorOrNumber& b) {
  return function("logaddexp2", a, b, BinaryOp::kLogAddExp2);
}
Tensor xlogy(const TensorOrNumber& a, const TensorOrNumber& b) {
  return function("xlogy", a, b, BinaryOp::kXlogy);
}
Tensor deg2rad(const Tensor& x) { return function("deg2rad", x, kPi / 180, BinaryOp::kMul); }
Tensor rad2deg(const Tensor& x) { return function("rad2deg", x, 180 / kPi, BinaryOp::kMul); }

Tensor polygamma(int n, const Tensor& x) {
  TESSERA_CHECK(n >= 0, "polygamma", "the order is {}; it must not be negative", n);
  if (n == 0) return ops::unary("polygamma", x, UnaryOp::kDigamma, ResultKind::kFloating);
  return function("polygamma", n, x, BinaryOp::kPolygamma);
}

Tensor bitwise_and(const TensorOrNumber& a, const TensorOrNumber& b) {
  return bitwise("bitwise_and", a, b, BinaryOp::kBitwiseAnd);
}
Tensor bitwise_or(const TensorOrNumber& a, const TensorOrNumber& b) {
  return bitwise("bitwise_or", a, b, BinaryOp::kBitwiseOr);
}
Tensor bitwise_xor(const TensorOrNumber& a, const TensorOrNumber& b) {
  return bitwise("bitwise_xor", a, b, BinaryOp::kBitwiseXor);
}
Tensor bitwise_left_shift(const TensorOrNumber& a, const TensorOrNumber& b) {
  return shift("bitwise_left_shift", a, b, BinaryOp::kBitwiseLeftShift);
}
Tensor bitwise_right_shift(const TensorOrNumber& a, const TensorOrNumber& b) {
  return shift("bitwise_right_shift", a, b, BinaryOp::kBitwiseRightShift);
}
void bitwise_and_(const Tensor& x, const TensorOrNumber& y) {
  bitwise("bitwise_and_", x, y, BinaryOp::kBitwiseAnd, &x);
}
void bitwise_or_(const Tensor& x, const TensorOrNumber& y) {
  bitwise("bitwise_or_", x, y, BinaryOp::kBitwiseOr, &x);
}
void bitwise_xor_(const Tensor& x, const TensorOrNumber& y) {
  bitwise("bitwise_xor_", x, y, BinaryOp::kBitwiseXor, &x);
}

Tensor nan_to_num(const Tensor& x, const NanToNumOptions& options) {
  ops::check_defined("nan_to_num", "the tensor", x);
  return is_floating(x.dtype()) ? replaced("nan_to_num", x, options) : clone(x);
}
void nan_to_num_(const Tensor& x, const NanToNumOptions& options) {
  ops::check_defined("nan_to_num_", "the tensor", x);
  if (is_floating(x.dtype())) replaced("nan_to_num_", x, options, &x);
}

}  // namespace tessera
