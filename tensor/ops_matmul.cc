#include "tessera/tensor/ops_matmul.h"

#include "tessera/tensor/kernels/axpby.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/op_checks.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera {
namespace {

// Strides that the kernel takes for a matrix, or false: one of them 1, the other at least as long
// as what it steps over. A dim of extent 1 has no stride of its own and gets a fitting one.
bool settle_strides(ConstView& x) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  std::int64_t& row = x.strides[0];
  std::int64_t& column = x.strides[1];
  if (columns == 1 && row != 1) column = 1;
  if (rows == 1 && column == 1) row = columns;
  if (rows == 1 && column != 1) row = 1;
  return (column == 1 && row >= columns) || (row == 1 && column >= rows);
}

// An operand as the kernel takes it; a copy only where no stride fits.
ConstView operand(const Tensor& x, Tensor& keep_alive) {
  ConstView view = read(x);
  if (settle_strides(view)) return view;
  MemoryCategoryScope scratch(MemoryCategory::kWorkspace);
  keep_alive = clone(x);
  view = read(keep_alive);
  settle_strides(view);
  return view;
}

// out = beta * out, for products without an inner dim.
void scale(const Tensor& out, double beta) {
  AxpbyKernel::Args args = {.x = {}, .y = write(out), .alpha = 0, .beta = beta, .gamma = 0};
  sort_and_merge_dims(args.y.shape, {&args.y.strides});
  launch<AxpbyKernel>(out.device(), args);
}

// out = alpha * a b + beta * out; extents of 0 are dealt with, shapes are checked.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
              const MatmulIntoOptions& options) {
  if (out.numel() == 0) return;
  if (a.dim(1) == 0)
    return bias.defined() ? copy_(out, bias.expand(out.shape())) : scale(out, options.beta);
  Tensor copies[3];
  MatmulKernel::Args args = {.a = operand(a, copies[0]),
                             .b = operand(b, copies[1]),
                             .bias = {},
                             .c = write(out),
                             .alpha = options.alpha,
                             .beta = options.beta};
  if (args.c.shape[1] == 1) args.c.strides[1] = 1;
  if (args.c.shape[0] == 1 && args.c.strides[1] == 1) args.c.strides[0] = args.c.shape[1];
  if (bias.defined()) {
    copies[2] = contiguous(bias);
    args.bias = read(copies[2]);
  }
  launch<MatmulKernel>(out.device(), args);
}

void check_matrices(const char* where, const Tensor& a, const Tensor& b) {
  ops::check_operands(where, a, b);
  ops::check_floating(where, a);
  TESSERA_CHECK(a.ndim() == 2 && b.ndim() == 2, where,
                "needs two matrices, got {} and {}; reshape or select first", a.shape().str(),
                b.shape().str());
  TESSERA_CHECK(a.dim(1) == b.dim(0), where,
                "{} and {} do not multiply: inner dims {} and {} differ; transpose one?",
                a.shape().str(), b.shape().str(), a.dim(1), b.dim(0));
}

void check_output(const Tensor& out, const Tensor& a, const Tensor& b) {
  ops::check_operands("matmul_into", out, a);
  const Shape shape{a.dim(0), b.dim(1)};
  TESSERA_CHECK(out.shape() == shape, "matmul_into",
                "the output has shape {}, the product {}; pass one of that shape",
                out.shape().str(), shape.str());
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_matrices("matmul", a, b);
  const Tensor out = Tensor::empty({a.dim(0), b.dim(1)}, a.options());
  multiply(out, a, b, {}, {});
  return out;
}

void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b,
                 const MatmulIntoOptions& options) {
  check_matrices("matmul_into", a, b);
  ops::check_defined("matmul_into", "the output", out);
  check_output(out, a, b);
  ConstView layout{.shape = out.shape(), .strides = out.strides()};
  TESSERA_CHECK(out.numel() == 0 || settle_strides(layout), "matmul_into",
                "the output {} with strides {} has neither rows nor columns of unit stride; pass a "
                "contiguous one",
                out.shape().str(), out.strides().str());
  if (layout.strides[1] == 1 || out.numel() == 0) return multiply(out, a, b, {}, options);
  multiply(out.transpose(0, 1), b.transpose(0, 1), a.transpose(0, 1), {}, options);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  ops::check_operands("linear", x, weight);
  ops::check_floating("linear", x);
  TESSERA_CHECK(x.ndim() >= 1 && weight.ndim() == 2, "linear",
                "needs x [..., in] and weight [out, in], got {} and {}", x.shape().str(),
                weight.shape().str());
  const std::int64_t in = weight.dim(1), out_features = weight.dim(0);
  TESSERA_CHECK(x.dim(-1) == in, "linear",
                "x {} has {} features, weight {} takes {}; they must agree", x.shape().str(),
                x.dim(-1), weight.shape().str(), in);
  if (bias.defined()) {
    ops::check_operands("linear", x, bias);
    TESSERA_CHECK(bias.shape() == Shape{out_features}, "linear", "bias has shape {}, expected {}",
                  bias.shape().str(), Shape{out_features}.str());
  }
  const Tensor out = Tensor::empty(x.shape().with(x.ndim() - 1, out_features), x.options());
  const std::int64_t rows = out_features > 0 ? out.numel() / out_features : 0;
  const Tensor x_rows = x.ndim() == 2 || rows == 0 ? x : contiguous(x).view({rows, in});
  if (rows > 0) multiply(out.view({rows, out_features}), x_rows, weight.transpose(0, 1), bias, {});
  return out;
}

}  // namespace tessera
