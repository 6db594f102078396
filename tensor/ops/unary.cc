#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {

using ops::ResultKind;

namespace {

// Functions that keep integers and bool, functions that keep integers, and floating functions.
Tensor keeping(const char* name, const Tensor& x, UnaryOp op, const Tensor* out = nullptr) {
  return ops::unary(name, x, op, ResultKind::kPromoted, out);
}
Tensor number(const char* name, const Tensor& x, UnaryOp op, const Tensor* out = nullptr) {
  return ops::unary(name, x, op, ResultKind::kNumber, out);
}
Tensor floating(const char* name, const Tensor& x, UnaryOp op, const Tensor* out = nullptr) {
  return ops::unary(name, x, op, ResultKind::kFloating, out);
}
Tensor predicate(const char* name, const Tensor& x, UnaryOp op) {
  return ops::unary(name, x, op, ResultKind::kBool);
}

void check_not_bool(const char* name, const Tensor& x) {
  ops::check_defined(name, "the tensor", x);
  TESSERA_CHECK(x.dtype() != DType::kBool, name,
                "a bool has no negative; use logical_not, or cast it");
}

Tensor slope(const char* name, const Tensor& dy, const Tensor& x, BinaryOp op) {
  ops::check_operands(name, dy, x);
  ops::check_floating(name, x);
  ops::check_same_shape(name, dy, x);
  return ops::binary(name, dy, x, op, ResultKind::kPromoted);
}

}  // namespace

Tensor neg(const Tensor& x) {
  check_not_bool("neg", x);
  return keeping("neg", x, UnaryOp::kNeg);
}
Tensor abs(const Tensor& x) { return keeping("abs", x, UnaryOp::kAbs); }
Tensor sign(const Tensor& x) { return keeping("sign", x, UnaryOp::kSign); }
Tensor square(const Tensor& x) { return number("square", x, UnaryOp::kSquare); }
Tensor relu(const Tensor& x) { return keeping("relu", x, UnaryOp::kRelu); }
Tensor floor(const Tensor& x) { return keeping("floor", x, UnaryOp::kFloor); }
Tensor ceil(const Tensor& x) { return keeping("ceil", x, UnaryOp::kCeil); }
Tensor round(const Tensor& x) { return keeping("round", x, UnaryOp::kRound); }
Tensor trunc(const Tensor& x) { return keeping("trunc", x, UnaryOp::kTrunc); }

Tensor reciprocal(const Tensor& x) { return floating("reciprocal", x, UnaryOp::kReciprocal); }
Tensor exp(const Tensor& x) { return floating("exp", x, UnaryOp::kExp); }
Tensor expm1(const Tensor& x) { return floating("expm1", x, UnaryOp::kExpm1); }
Tensor log(const Tensor& x) { return floating("log", x, UnaryOp::kLog); }
Tensor log1p(const Tensor& x) { return floating("log1p", x, UnaryOp::kLog1p); }
Tensor sqrt(const Tensor& x) { return floating("sqrt", x, UnaryOp::kSqrt); }
Tensor rsqrt(const Tensor& x) { return floating("rsqrt", x, UnaryOp::kRsqrt); }
Tensor sin(const Tensor& x) { return floating("sin", x, UnaryOp::kSin); }
Tensor cos(const Tensor& x) { return floating("cos", x, UnaryOp::kCos); }
Tensor erf(const Tensor& x) { return floating("erf", x, UnaryOp::kErf); }
Tensor tanh(const Tensor& x) { return floating("tanh", x, UnaryOp::kTanh); }
Tensor sigmoid(const Tensor& x) { return floating("sigmoid", x, UnaryOp::kSigmoid); }
Tensor gelu(const Tensor& x) { return floating("gelu", x, UnaryOp::kGelu); }
Tensor gelu_tanh(const Tensor& x) { return floating("gelu_tanh", x, UnaryOp::kGeluTanh); }
Tensor silu(const Tensor& x) { return floating("silu", x, UnaryOp::kSilu); }
Tensor softplus(const Tensor& x) { return floating("softplus", x, UnaryOp::kSoftplus); }

void neg_(const Tensor& x) {
  check_not_bool("neg_", x);
  keeping("neg_", x, UnaryOp::kNeg, &x);
}
void abs_(const Tensor& x) { keeping("abs_", x, UnaryOp::kAbs, &x); }
void square_(const Tensor& x) { number("square_", x, UnaryOp::kSquare, &x); }
void relu_(const Tensor& x) { keeping("relu_", x, UnaryOp::kRelu, &x); }
void exp_(const Tensor& x) { floating("exp_", x, UnaryOp::kExp, &x); }
void log_(const Tensor& x) { floating("log_", x, UnaryOp::kLog, &x); }
void sqrt_(const Tensor& x) { floating("sqrt_", x, UnaryOp::kSqrt, &x); }
void rsqrt_(const Tensor& x) { floating("rsqrt_", x, UnaryOp::kRsqrt, &x); }
void reciprocal_(const Tensor& x) { floating("reciprocal_", x, UnaryOp::kReciprocal, &x); }
void tanh_(const Tensor& x) { floating("tanh_", x, UnaryOp::kTanh, &x); }
void sigmoid_(const Tensor& x) { floating("sigmoid_", x, UnaryOp::kSigmoid, &x); }

Tensor logical_not(const Tensor& x) { return predicate("logical_not", x, UnaryOp::kLogicalNot); }
Tensor isnan(const Tensor& x) { return predicate("isnan", x, UnaryOp::kIsNan); }
Tensor isinf(const Tensor& x) { return predicate("isinf", x, UnaryOp::kIsInf); }
Tensor isfinite(const Tensor& x) { return predicate("isfinite", x, UnaryOp::kIsFinite); }

Tensor relu_backward(const Tensor& dy, const Tensor& x) {
  return slope("relu_backward", dy, x, BinaryOp::kReluBackward);
}
Tensor gelu_backward(const Tensor& dy, const Tensor& x) {
  return slope("gelu_backward", dy, x, BinaryOp::kGeluBackward);
}
Tensor gelu_tanh_backward(const Tensor& dy, const Tensor& x) {
  return slope("gelu_tanh_backward", dy, x, BinaryOp::kGeluTanhBackward);
}
Tensor silu_backward(const Tensor& dy, const Tensor& x) {
  return slope("silu_backward", dy, x, BinaryOp::kSiluBackward);
}
Tensor softplus_backward(const Tensor& dy, const Tensor& x) {
  return slope("softplus_backward", dy, x, BinaryOp::kSoftplusBackward);
}
Tensor tanh_backward(const Tensor& dy, const Tensor& y) {
  return slope("tanh_backward", dy, y, BinaryOp::kTanhBackward);
}
Tensor sigmoid_backward(const Tensor& dy, const Tensor& y) {
  return slope("sigmoid_backward", dy, y, BinaryOp::kSigmoidBackward);
}

}  // namespace tessera
