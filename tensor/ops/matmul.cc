#include "tessera/tensor/ops/matmul.h"

#include <optional>
#include <span>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

// The operations applied to the product before it is stored.
struct Epilogue {
  Tensor bias;
  Tensor before;  // undefined: not requested
  double alpha = 1;
  double beta = 0;
  ActivationKind activation = ActivationKind::kNone;
};

bool settle_last_two(const Shape& shape, Shape& strides) {
  const int row = shape.ndim() - 2, column = shape.ndim() - 1;
  return settle_strides(shape[row], shape[column], strides[row], strides[column]);
}

// A view of all matrices of a batch, as the kernel takes it; copied only if no stride covers the
// batch.
ConstView operand(const Tensor& x, const Shape& batch, Tensor& keep_alive) {
  Shape strides = x.strides();
  keep_alive = x;
  if (x.numel() > 0 && !settle_last_two(x.shape(), strides)) {
    MemoryCategoryScope scratch(MemoryCategory::kWorkspace);
    keep_alive = clone(x);
  }
  const ConstView all = read(keep_alive);
  ConstView view = all;
  // Broadcasts as expand does, without creating another handle.
  const int lead = batch.ndim() + 2 - x.ndim();
  view.shape = view.strides = batch;
  for (int dim = 0; dim < batch.ndim(); ++dim) {
    const bool repeats = dim < lead || x.shape()[dim - lead] != batch[dim];
    view.strides[dim] = repeats ? 0 : all.strides[dim - lead];
  }
  for (int dim = x.ndim() - 2; dim < x.ndim(); ++dim) {
    view.shape.push_back(all.shape[dim]);
    view.strides.push_back(all.strides[dim]);
  }
  settle_last_two(view.shape, view.strides);
  return view;
}

// An output with rows of unit stride.
View settled(const Tensor& out) {
  View view = overwrite(out, "matmul_into");
  const int row = view.shape.ndim() - 2, column = view.shape.ndim() - 1;
  if (view.shape[column] == 1) view.strides[column] = 1;
  if (view.shape[row] == 1) view.strides[row] = view.shape[column];
  return view;
}

Tensor transposed(const Tensor& x) { return x.transpose(-1, -2); }
Tensor transposed_if_defined(const Tensor& x) { return x.defined() ? transposed(x) : x; }

// out = activation(alpha * a b + bias + beta * out); shapes are checked, all have at least 2 dims.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Epilogue& epilogue) {
  if (out.numel() == 0) return;
  // A column is computed as a row, which is faster because the vector then stays in registers.
  if (out.dim(-1) == 1 && out.dim(-2) > 1 && out.strides()[out.ndim() - 2] == 1) {
    Epilogue swapped = epilogue;
    swapped.before = transposed_if_defined(epilogue.before);
    if (epilogue.bias.defined()) swapped.bias = epilogue.bias.expand({out.dim(-2)});
    return multiply(transposed(out), transposed(b), transposed(a), swapped);
  }
  Shape batch = out.shape().without(out.ndim() - 1);
  batch = batch.without(out.ndim() - 2);
  Tensor copies[3];
  MatmulKernel::Args args = {.a = operand(a, batch, copies[0]),
                             .b = operand(b, batch, copies[1]),
                             .bias = {},
                             .before = {},
                             .c = settled(out),
                             .alpha = epilogue.alpha,
                             .beta = epilogue.beta,
                             .activation = epilogue.activation};
  if (epilogue.before.defined()) args.before = settled(epilogue.before);
  if (epilogue.bias.defined()) {
    const bool one_number = epilogue.bias.strides()[0] == 0;
    copies[2] = one_number ? epilogue.bias : contiguous(epilogue.bias);
    args.bias = read(copies[2]);
    args.bias.strides[0] = one_number ? 0 : 1;
  }
  launch<MatmulKernel>(out.device(), args);
}

// A vector as a matrix: a row on the left, a column on the right.
Tensor as_matrix(const Tensor& x, int vector_dim) {
  return x.ndim() == 1 ? x.unsqueeze(vector_dim) : x;
}

Shape leading(const Shape& shape) { return Shape(std::span(shape.begin(), shape.end() - 2)); }

void check_factors(const char* where, const Tensor& a, const Tensor& b) {
  ops::check_operands(where, a, b);
  ops::check_floating(where, a);
  TESSERA_CHECK(a.ndim() >= 1 && b.ndim() >= 1, where,
                "needs operands of at least 1 dim, got {} and {}; for a number use mul",
                a.shape().str(), b.shape().str());
  const std::int64_t left = a.dim(-1), right = b.dim(b.ndim() == 1 ? 0 : -2);
  TESSERA_CHECK(left == right, where,
                "{} and {} do not multiply: inner dims {} and {} differ; transpose one?",
                a.shape().str(), b.shape().str(), left, right);
}

// The shape of the product of two factors of at least 2 dims.
Shape product_shape(const char* where, const Tensor& a, const Tensor& b) {
  Shape shape = broadcast_shapes(leading(a.shape()), leading(b.shape()), where);
  shape.push_back(a.dim(-2));
  shape.push_back(b.dim(-1));
  return shape;
}

// Many matrices times one are a single product with all rows.
void multiply_folded(const Tensor& out, const Tensor& a, const Tensor& b,
                     const Epilogue& epilogue) {
  const bool one_b = a.ndim() > 2 && b.numel() == b.dim(-1) * b.dim(-2);
  const bool a_is_whole = a.shape() == out.shape().with(out.ndim() - 1, a.dim(-1));
  if (!one_b || !a_is_whole || out.numel() == 0 || a.numel() == 0)
    return multiply(out, a, b, epilogue);
  const std::int64_t rows = out.numel() / out.dim(-1);
  const std::optional<Tensor> a_rows = a.try_view({rows, a.dim(-1)}),
                              out_rows = out.try_view({rows, out.dim(-1)});
  if (!a_rows || !out_rows) return multiply(out, a, b, epilogue);
  multiply(*out_rows, *a_rows, b.view({b.dim(-2), b.dim(-1)}), epilogue);
}

void check_output(const Tensor& out, const Tensor& a, const Tensor& b) {
  ops::check_defined("matmul_into", "the output", out);
  ops::check_floating("matmul_into", out);
  ops::check_same_device("matmul_into", out, a);
  const Shape shape = product_shape("matmul_into", a, b);
  TESSERA_CHECK(out.shape() == shape, "matmul_into",
                "the output has shape {}, the product {}; pass one of that shape",
                out.shape().str(), shape.str());
  if (out.numel() == 0) return;
  for (int dim = 0; dim + 2 < out.ndim(); ++dim)
    TESSERA_CHECK(out.dim(dim) <= 1 || out.strides()[dim] != 0, "matmul_into",
                  "the output {} with strides {} repeats elements in dim {}; pass a contiguous one",
                  out.shape().str(), out.strides().str(), dim);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_factors("matmul", a, b);
  const Tensor left = as_matrix(a, 0), right = as_matrix(b, 1);
  Tensor out = Tensor::empty(product_shape("matmul", left, right), a.options());
  multiply_folded(out, left, right, {});
  if (b.ndim() == 1) out = out.squeeze(-1);
  return a.ndim() == 1 ? out.squeeze(b.ndim() == 1 ? -1 : -2) : out;
}

void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b,
                 const MatmulIntoOptions& options) {
  check_factors("matmul_into", a, b);
  TESSERA_CHECK(a.ndim() >= 2 && b.ndim() >= 2, "matmul_into",
                "needs operands of at least 2 dims, got {} and {}; unsqueeze first",
                a.shape().str(), b.shape().str());
  check_output(out, a, b);
  if (out.numel() == 0) return;
  const Epilogue epilogue = {
      .bias = {}, .before = {}, .alpha = options.alpha, .beta = options.beta};
  Shape strides = out.strides();
  TESSERA_CHECK(settle_last_two(out.shape(), strides), "matmul_into",
                "the output {} with strides {} has neither rows nor columns of unit stride; pass a "
                "contiguous one",
                out.shape().str(), out.strides().str());
  if (strides.back() == 1) return multiply_folded(out, a, b, epilogue);
  multiply(transposed(out), transposed(b), transposed(a), epilogue);
}

namespace {

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  ops::check_operands("linear", x, weight);
  ops::check_floating("linear", x);
  TESSERA_CHECK(x.ndim() >= 1 && weight.ndim() == 2, "linear",
                "needs x [..., in] and weight [out, in], got {} and {}", x.shape().str(),
                weight.shape().str());
  TESSERA_CHECK(x.dim(-1) == weight.dim(1), "linear",
                "x {} has {} features, weight {} takes {}; they must agree", x.shape().str(),
                x.dim(-1), weight.shape().str(), weight.dim(1));
  if (!bias.defined()) return;
  ops::check_operands("linear", x, bias);
  TESSERA_CHECK(bias.shape() == Shape{weight.dim(0)}, "linear", "bias has shape {}, expected {}",
                bias.shape().str(), Shape{weight.dim(0)}.str());
}

void multiply_linear(const ActivatedLinear& out, const Tensor& x, const Tensor& weight,
                     const Epilogue& epilogue) {
  const std::int64_t in = weight.dim(1), width = weight.dim(0);
  const std::int64_t rows = width > 0 ? out.result.numel() / width : 0;
  if (rows == 0) return;
  const Tensor as_rows = reshape(x, {rows, in});
  Epilogue all = epilogue;
  if (out.before.defined()) all.before = out.before.view({rows, width});
  multiply(out.result.view({rows, width}), as_rows, weight.transpose(0, 1), all);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, ActivationKind activation,
              RowPitch pitch) {
  check_linear(x, weight, bias);
  const Shape shape = x.shape().with(x.ndim() - 1, weight.dim(0));
  const Tensor out = empty_rows(shape, pitch, x.options());
  multiply_linear({.result = out, .before = {}}, x, weight,
                  {.bias = bias, .before = {}, .activation = activation});
  return out;
}

ActivatedLinear linear_and_before(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                  ActivationKind activation, RowPitch pitch) {
  if (activation == ActivationKind::kNone) {
    const Tensor out = linear(x, weight, bias, activation, pitch);
    return {.result = out, .before = out};
  }
  check_linear(x, weight, bias);
  const Shape shape = x.shape().with(x.ndim() - 1, weight.dim(0));
  const ActivatedLinear out = {.result = empty_rows(shape, pitch, x.options()),
                               .before = empty_rows(shape, pitch, x.options())};
  multiply_linear(out, x, weight, {.bias = bias, .before = {}, .activation = activation});
  return out;
}

namespace {

void check_batches(const char* where, const Tensor& a, const Tensor& b) {
  check_factors(where, a, b);
  TESSERA_CHECK(a.ndim() == 3 && b.ndim() == 3 && a.dim(0) == b.dim(0), where,
                "needs [b, m, k] and [b, k, n], got {} and {}; matmul broadcasts", a.shape().str(),
                b.shape().str());
}

// beta * c + alpha * a b, for factors that are checked.
Tensor added_product(const char* where, const Tensor& c, const Tensor& a, const Tensor& b,
                     const AddmmOptions& options) {
  const Shape shape = product_shape(where, a, b);
  ops::check_added(where, c, a, shape);
  const Tensor out = options.beta == 0 ? Tensor::empty(shape, a.options()) : clone(c.expand(shape));
  matmul_into(out, a, b, {.alpha = options.alpha, .beta = options.beta});
  return out;
}

}  // namespace

Tensor bmm(const Tensor& a, const Tensor& b) {
  check_batches("bmm", a, b);
  return matmul(a, b);
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  check_factors("addmm", a, b);
  TESSERA_CHECK(a.ndim() == 2 && b.ndim() == 2, "addmm",
                "needs two matrices to multiply, got {} and {}; matmul takes more dims",
                a.shape().str(), b.shape().str());
  return added_product("addmm", c, a, b, options);
}

Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  check_batches("baddbmm", a, b);
  return added_product("baddbmm", c, a, b, options);
}

namespace {

void check_ndims(const char* where, const Tensor& a, const Tensor& b, int a_dims) {
  ops::check_operands(where, a, b);
  TESSERA_CHECK(a.ndim() == a_dims && b.ndim() == 1, where, "needs {} and a vector, got {} and {}",
                a_dims == 2 ? "a matrix" : "a vector", a.shape().str(), b.shape().str());
}

}  // namespace

Tensor mv(const Tensor& a, const Tensor& x) {
  check_ndims("mv", a, x, 2);
  check_factors("mv", a, x);
  return matmul(a, x);
}

Tensor dot(const Tensor& a, const Tensor& b) {
  check_ndims("dot", a, b, 1);
  check_factors("dot", a, b);
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  check_ndims("outer", a, b, 1);
  return mul(a.unsqueeze(1), b.unsqueeze(0));
}

}  // namespace tessera
