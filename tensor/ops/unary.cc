#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {

using ops::ResultKind;

namespace {

void check_not_bool(const char* name, const Tensor& x) {
  ops::check_defined(name, "the tensor", x);
  TESSERA_CHECK(x.dtype() != DType::kBool, name,
                "a bool has no negative; use logical_not, or cast it");
}

// The operation, which for bool may be another.
UnaryOp checked_bitwise(const char* name, const Tensor& x, UnaryOp op) {
  ops::check_integers(name, {x});
  return x.dtype() == DType::kBool ? UnaryOp::kLogicalNot : op;
}

Tensor function(const char* name, const Tensor& x, UnaryOp op, ResultKind kind,
                const Tensor* out = nullptr) {
  if (op == UnaryOp::kNeg) check_not_bool(name, x);
  if (op == UnaryOp::kBitwiseNot) op = checked_bitwise(name, x, op);
  return ops::unary(name, x, op, kind, out);
}

Tensor slope(const char* name, const Tensor& dy, const Tensor& x, BinaryOp op,
             const Tensor* out = nullptr) {
  ops::check_operands(name, dy, x);
  ops::check_floating(name, x);
  ops::check_same_shape(name, dy, x);
  return ops::binary(name, dy, x, op, ResultKind::kPromoted, out);
}

}  // namespace

#define VALUE_ONLY(function_, Functor, result)
#define IN_PLACE(function_, Functor, result)                              \
  void function_(const Tensor& x) {                                       \
    function(#function_, x, UnaryOp::k##Functor, ResultKind::result, &x); \
  }
#define TESSERA_DEFINE(name, Functor, result, in_place)                 \
  Tensor name(const Tensor& x) {                                        \
    return function(#name, x, UnaryOp::k##Functor, ResultKind::result); \
  }                                                                     \
  in_place(name##_, Functor, result)

TESSERA_UNARY_FUNCTIONS(TESSERA_DEFINE)
TESSERA_UNARY_BITWISE(TESSERA_DEFINE)
TESSERA_UNARY_PREDICATES(TESSERA_DEFINE)

#undef TESSERA_DEFINE
#undef IN_PLACE
#undef VALUE_ONLY

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
void gelu_backward_(const Tensor& x, const Tensor& dy) {
  slope("gelu_backward_", dy, x, BinaryOp::kGeluBackward, &x);
}
void gelu_tanh_backward_(const Tensor& x, const Tensor& dy) {
  slope("gelu_tanh_backward_", dy, x, BinaryOp::kGeluTanhBackward, &x);
}
void silu_backward_(const Tensor& x, const Tensor& dy) {
  slope("silu_backward_", dy, x, BinaryOp::kSiluBackward, &x);
}

}  // namespace tessera
