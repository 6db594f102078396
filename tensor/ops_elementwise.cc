#include "tessera/tensor/ops_elementwise.h"

#include <cmath>

#include "tessera/tensor/kernels/axpby.h"
#include "tessera/tensor/kernels/binary.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/unary.h"
#include "tessera/tensor/op_checks.h"

namespace tessera {
namespace {

Tensor unary(const char* where, const Tensor& x, UnaryOp op) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  UnaryKernel::Args args = {.x = read(x), .y = write(out), .op = op};
  sort_and_merge_dims(args.y.shape, {&args.y.strides, &args.x.strides});
  args.x.shape = args.y.shape;
  launch<UnaryKernel>(out.device(), args);
  return out;
}

Tensor binary(const char* where, const Tensor& a, const Tensor& b, BinaryOp op) {
  ops::check_operands(where, a, b);
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), where);
  const DType dtype = op == BinaryOp::kEqual ? DType::kU8 : a.dtype();
  const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = a.device()});
  BinaryKernel::Args args = {
      .a = read(a.expand(shape)), .b = read(b.expand(shape)), .y = write(out), .op = op};
  sort_and_merge_dims(args.y.shape, {&args.y.strides, &args.a.strides, &args.b.strides});
  args.a.shape = args.b.shape = args.y.shape;
  launch<BinaryKernel>(out.device(), args);
  return out;
}

Tensor derivative(const char* where, const Tensor& dy, const Tensor& x, BinaryOp op) {
  ops::check_operands(where, dy, x);
  ops::check_floating(where, x);
  ops::check_same_shape(where, dy, x);
  return binary(where, dy, x, op);
}

struct Affine {
  double alpha = 1;
  double beta = 0;
  double gamma = 0;
};

void check_number(const char* where, double number, DType dtype) {
  TESSERA_CHECK(is_floating(dtype) || (number == std::trunc(number) && std::abs(number) < 0x1p63),
                where,
                "the number {} is not a whole number that {} tensors can be computed with; cast to "
                "a floating dtype first",
                number, dtype_name(dtype));
}

void affine(const char* where, const Tensor& out, const Tensor& x, const Affine& factors) {
  ops::check_defined(where, "the output", out);
  ops::check_defined(where, "the tensor", x);
  ops::check_same_device(where, out, x);
  ops::check_same_shape(where, out, x);
  if (!is_floating(out.dtype()) && !is_floating(x.dtype())) {
    for (double number : {factors.alpha, factors.beta, factors.gamma})
      check_number(where, number, x.dtype());
  }
  AxpbyKernel::Args args = {.x = read(x),
                            .y = write(out),
                            .alpha = factors.alpha,
                            .beta = factors.beta,
                            .gamma = factors.gamma};
  sort_and_merge_dims(args.y.shape, {&args.y.strides, &args.x.strides});
  args.x.shape = args.y.shape;
  launch<AxpbyKernel>(out.device(), args);
}

Tensor affine_of(const char* where, const Tensor& x, const Affine& factors) {
  ops::check_defined(where, "the tensor", x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  affine(where, out, x, factors);
  return out;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return binary("add", a, b, BinaryOp::kAdd); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary("sub", a, b, BinaryOp::kSub); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary("mul", a, b, BinaryOp::kMul); }
Tensor div(const Tensor& a, const Tensor& b) {
  ops::check_operands("div", a, b);
  ops::check_floating("div", a);
  return binary("div", a, b, BinaryOp::kDiv);
}
Tensor add(const Tensor& a, double b) { return affine_of("add", a, {.gamma = b}); }
Tensor mul(const Tensor& a, double b) { return affine_of("mul", a, {.alpha = b}); }

Tensor neg(const Tensor& x) { return unary("neg", x, UnaryOp::kNeg); }
Tensor abs(const Tensor& x) { return unary("abs", x, UnaryOp::kAbs); }
Tensor exp(const Tensor& x) { return unary("exp", x, UnaryOp::kExp); }
Tensor log(const Tensor& x) { return unary("log", x, UnaryOp::kLog); }
Tensor sqrt(const Tensor& x) { return unary("sqrt", x, UnaryOp::kSqrt); }
Tensor square(const Tensor& x) { return unary("square", x, UnaryOp::kSquare); }
Tensor tanh(const Tensor& x) { return unary("tanh", x, UnaryOp::kTanh); }
Tensor relu(const Tensor& x) { return unary("relu", x, UnaryOp::kRelu); }
Tensor gelu(const Tensor& x) { return unary("gelu", x, UnaryOp::kGelu); }

Tensor relu_backward(const Tensor& dy, const Tensor& x) {
  return derivative("relu_backward", dy, x, BinaryOp::kReluBackward);
}
Tensor gelu_backward(const Tensor& dy, const Tensor& x) {
  return derivative("gelu_backward", dy, x, BinaryOp::kGeluBackward);
}

Tensor equal(const Tensor& a, const Tensor& b) { return binary("equal", a, b, BinaryOp::kEqual); }

Tensor clone(const Tensor& x) { return affine_of("clone", x, {}); }

Tensor cast(const Tensor& x, DType dtype) {
  ops::check_defined("cast", "the tensor", x);
  const Tensor out = Tensor::empty(x.shape(), {.dtype = dtype, .device = x.device()});
  affine("cast", out, x, {});
  return out;
}

Tensor contiguous(const Tensor& x) {
  ops::check_defined("contiguous", "the tensor", x);
  return x.is_contiguous() ? x : clone(x);
}

void copy_(const Tensor& out, const Tensor& x) { affine("copy_", out, x, {}); }

void axpby_(const Tensor& out, const Tensor& x, const AxpbyOptions& options) {
  affine("axpby_", out, x, {.alpha = options.alpha, .beta = options.beta});
}

}  // namespace tessera
