#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {

using ops::ResultKind;

namespace {

Tensor arithmetic(const char* name, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op,
                  const Tensor* out = nullptr) {
  return ops::binary(name, a, b, op, ResultKind::kPromoted, out);
}
Tensor comparison(const char* name, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op) {
  return ops::binary(name, a, b, op, ResultKind::kBool);
}

bool is_bool(const TensorOrNumber& x) {
  return (!x.is_tensor() || x.tensor().defined()) && x.dtype() == DType::kBool;
}

void check_not_bools(const char* name, const TensorOrNumber& a, const TensorOrNumber& b) {
  TESSERA_CHECK(!is_bool(a) || !is_bool(b), name,
                "the difference of two bools is not a bool; use logical_xor, or cast one of them");
}

// a + alpha b.
Tensor scaled_sum(const char* name, const TensorOrNumber& a, const TensorOrNumber& b, double alpha,
                  const Tensor* out = nullptr) {
  TESSERA_CHECK(!is_bool(a) || !is_bool(b), name,
                "the sum of two bools takes no alpha; cast one of them");
  return ops::ternary(name, {a, b, 1}, TernaryOp::kAddcmul, out, alpha);
}

// A power of a tensor by a number for which a faster kernel exists; undefined for other powers.
Tensor power(const char* name, const TensorOrNumber& a, const TensorOrNumber& b,
             const Tensor* out = nullptr) {
  const bool number = !b.is_tensor() && a.is_tensor() && a.tensor().defined();
  if (number && !is_floating(a.dtype()) && b.dtype() == DType::kI64) {
    TESSERA_CHECK(b.number() >= 0, name,
                  "an integer to the power {} is no integer; cast it to a floating dtype first",
                  b.number());
  }
  if (number && b.number() == 2 && !is_bool(a)) {
    const auto kind = b.dtype() == DType::kF32 ? ResultKind::kFloating : ResultKind::kPromoted;
    return ops::unary(name, a.tensor(), UnaryOp::kSquare, kind, out);
  }
  return arithmetic(name, a, b, BinaryOp::kPow, out);
}

void check_floating_result(const char* name, std::initializer_list<TensorOrNumber> operands) {
  for (const TensorOrNumber& x : operands) {
    if (x.is_tensor()) ops::check_defined(name, "an operand", x.tensor());
  }
  const DType dtype = result_dtype(operands);
  TESSERA_CHECK(is_floating(dtype), name, "needs a floating dtype, got {}; cast an operand first",
                dtype_name(dtype));
}

}  // namespace

Tensor add(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("add", a, b, BinaryOp::kAdd);
}
Tensor add(const TensorOrNumber& a, const TensorOrNumber& b, double alpha) {
  return scaled_sum("add", a, b, alpha);
}
Tensor mul(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("mul", a, b, BinaryOp::kMul);
}
Tensor floor_divide(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("floor_divide", a, b, BinaryOp::kFloorDivide);
}
Tensor remainder(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("remainder", a, b, BinaryOp::kRemainder);
}
Tensor fmod(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("fmod", a, b, BinaryOp::kFmod);
}
Tensor maximum(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("maximum", a, b, BinaryOp::kMaximum);
}
Tensor minimum(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("minimum", a, b, BinaryOp::kMinimum);
}
Tensor fmax(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("fmax", a, b, BinaryOp::kFmax);
}
Tensor fmin(const TensorOrNumber& a, const TensorOrNumber& b) {
  return arithmetic("fmin", a, b, BinaryOp::kFmin);
}
Tensor sub(const TensorOrNumber& a, const TensorOrNumber& b, double alpha) {
  return scaled_sum("sub", a, b, -alpha);
}
Tensor sub(const TensorOrNumber& a, const TensorOrNumber& b) {
  check_not_bools("sub", a, b);
  return arithmetic("sub", a, b, BinaryOp::kSub);
}
Tensor div(const TensorOrNumber& a, const TensorOrNumber& b) {
  return ops::binary("div", a, b, BinaryOp::kDiv, ResultKind::kFloating);
}
Tensor div(const TensorOrNumber& a, const TensorOrNumber& b, RoundingMode rounding_mode) {
  switch (rounding_mode) {
    case RoundingMode::kTrunc:
      return arithmetic("div", a, b, BinaryOp::kTruncDivide);
    case RoundingMode::kFloor:
      return arithmetic("div", a, b, BinaryOp::kFloorDivide);
  }
  return {};
}
Tensor pow(const TensorOrNumber& a, const TensorOrNumber& b) { return power("pow", a, b); }

Tensor clamp(const Tensor& x, const TensorOrNumber& low, const TensorOrNumber& high) {
  return ops::ternary("clamp", {x, low, high}, TernaryOp::kClamp);
}
Tensor clamp_min(const Tensor& x, const TensorOrNumber& low) {
  return arithmetic("clamp_min", x, low, BinaryOp::kMaximum);
}
Tensor clamp_max(const Tensor& x, const TensorOrNumber& high) {
  return arithmetic("clamp_max", x, high, BinaryOp::kMinimum);
}
Tensor lerp(const Tensor& a, const TensorOrNumber& b, const TensorOrNumber& weight) {
  check_floating_result("lerp", {a, b, weight});
  return ops::ternary("lerp", {a, b, weight}, TernaryOp::kLerp);
}
Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, double factor) {
  return ops::ternary("addcmul", {a, b, c}, TernaryOp::kAddcmul, nullptr, factor);
}
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, double factor) {
  check_floating_result("addcdiv", {a, b, c});
  return ops::ternary("addcdiv", {a, b, c}, TernaryOp::kAddcdiv, nullptr, factor);
}
Tensor where(const Tensor& condition, const TensorOrNumber& a, const TensorOrNumber& b) {
  // Not converted to the compute dtype of a and b, in which it could become 0.
  const bool converts = condition.defined() && is_floating(condition.dtype());
  const Tensor flags = converts ? ne(condition, 0) : condition;
  return ops::ternary("where", {flags, a, b}, TernaryOp::kWhere);
}

void add_(const Tensor& x, const TensorOrNumber& y) {
  arithmetic("add_", x, y, BinaryOp::kAdd, &x);
}
void sub_(const Tensor& x, const TensorOrNumber& y) {
  check_not_bools("sub_", x, y);
  arithmetic("sub_", x, y, BinaryOp::kSub, &x);
}
void add_(const Tensor& x, const TensorOrNumber& y, double alpha) {
  scaled_sum("add_", x, y, alpha, &x);
}
void sub_(const Tensor& x, const TensorOrNumber& y, double alpha) {
  scaled_sum("sub_", x, y, -alpha, &x);
}
void mul_(const Tensor& x, const TensorOrNumber& y) {
  arithmetic("mul_", x, y, BinaryOp::kMul, &x);
}
void div_(const Tensor& x, const TensorOrNumber& y) {
  ops::binary("div_", x, y, BinaryOp::kDiv, ResultKind::kFloating, &x);
}
void pow_(const Tensor& x, const TensorOrNumber& y) { power("pow_", x, y, &x); }
void clamp_(const Tensor& x, const TensorOrNumber& low, const TensorOrNumber& high) {
  ops::ternary("clamp_", {x, low, high}, TernaryOp::kClamp, &x);
}
void clamp_min_(const Tensor& x, const TensorOrNumber& low) {
  arithmetic("clamp_min_", x, low, BinaryOp::kMaximum, &x);
}
void clamp_max_(const Tensor& x, const TensorOrNumber& high) {
  arithmetic("clamp_max_", x, high, BinaryOp::kMinimum, &x);
}
void lerp_(const Tensor& x, const TensorOrNumber& y, const TensorOrNumber& weight) {
  check_floating_result("lerp_", {x, y, weight});
  ops::ternary("lerp_", {x, y, weight}, TernaryOp::kLerp, &x);
}
void addcmul_(const Tensor& x, const Tensor& b, const Tensor& c, double factor) {
  ops::ternary("addcmul_", {x, b, c}, TernaryOp::kAddcmul, &x, factor);
}
void addcdiv_(const Tensor& x, const Tensor& b, const Tensor& c, double factor) {
  check_floating_result("addcdiv_", {x, b, c});
  ops::ternary("addcdiv_", {x, b, c}, TernaryOp::kAddcdiv, &x, factor);
}

Tensor eq(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("eq", a, b, BinaryOp::kEq);
}
Tensor ne(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("ne", a, b, BinaryOp::kNe);
}
Tensor lt(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("lt", a, b, BinaryOp::kLt);
}
Tensor le(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("le", a, b, BinaryOp::kLe);
}
Tensor gt(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("gt", a, b, BinaryOp::kGt);
}
Tensor ge(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("ge", a, b, BinaryOp::kGe);
}
Tensor logical_and(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("logical_and", a, b, BinaryOp::kLogicalAnd);
}
Tensor logical_or(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("logical_or", a, b, BinaryOp::kLogicalOr);
}
Tensor logical_xor(const TensorOrNumber& a, const TensorOrNumber& b) {
  return comparison("logical_xor", a, b, BinaryOp::kLogicalXor);
}

}  // namespace tessera
