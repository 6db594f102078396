#include <cmath>
#include <optional>
#include <utility>

#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/internal/overlap.h"

namespace tessera {
namespace {

void check_number(const char* where, double number, DType dtype) {
  TESSERA_CHECK(is_floating(dtype) || (number == std::trunc(number) && std::abs(number) < 0x1p63),
                where,
                "the number {} is not a whole number that {} tensors can be computed with; cast to "
                "a floating dtype first",
                number, dtype_name(dtype));
}

void affine(const char* where, const Tensor& out, const Tensor& x, const AxpbyOptions& factors) {
  ops::check_defined(where, "the output", out);
  ops::check_defined(where, "the tensor", x);
  ops::check_same_device(where, out, x);
  ops::check_same_shape(where, out, x);
  if (!is_floating(out.dtype()) && !is_floating(x.dtype())) {
    for (double number : {factors.alpha, factors.beta}) check_number(where, number, x.dtype());
  }
  ops::check_writable(where, out);
  Tensor copy;
  AxpbyKernel::Args args = {.x = read(ops::apart(x, out, copy)),
                            .y = overwrite(out, where),
                            .alpha = factors.alpha,
                            .beta = factors.beta};
  sort_and_merge_dims(args.y.shape, {&args.y.strides, &args.x.strides});
  args.x.shape = args.y.shape;
  launch<AxpbyKernel>(out.device(), args);
}

}  // namespace

Tensor clone(const Tensor& x) {
  ops::check_defined("clone", "the tensor", x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  affine("clone", out, x, {});
  return out;
}

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

Tensor reshape(const Tensor& x, const Shape& shape) {
  ops::check_defined("reshape", "the tensor", x);
  const Shape target = resolve_view_shape(shape, x.shape(), "reshape");
  if (std::optional<Tensor> view = x.try_view(target)) return *std::move(view);
  return clone(x).view(target);
}

Tensor flatten(const Tensor& x, int first, int last) {
  ops::check_defined("flatten", "the tensor", x);
  if (x.ndim() == 0) return x.view({1});
  const int from = normalize_dim(first, x.ndim(), "flatten"),
            to = normalize_dim(last, x.ndim(), "flatten");
  TESSERA_CHECK(from <= to, "flatten", "dim {} comes after dim {}; give the outer one first", first,
                last);
  Shape shape;
  std::int64_t extent = 1;
  for (int d = 0; d < x.ndim(); ++d) {
    extent = d < from || d > to ? x.dim(d) : d == from ? x.dim(d) : extent * x.dim(d);
    if (d < from || d >= to) shape.push_back(extent);
  }
  return reshape(x, shape);
}

void copy_(const Tensor& out, const Tensor& x) { affine("copy_", out, x, {}); }

void axpby_(const Tensor& out, const Tensor& x, const AxpbyOptions& options) {
  affine("axpby_", out, x, options);
}

}  // namespace tessera
