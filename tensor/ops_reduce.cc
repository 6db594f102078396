#include "tessera/tensor/ops_reduce.h"

#include <array>

#include "tessera/tensor/kernels/argmax.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/op_checks.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera {
namespace {

using DimMask = std::array<bool, kMaxDims>;

// True at the dims to reduce; all of them when none is named.
DimMask mask_of(const char* where, std::span<const int> dims, int ndim) {
  DimMask mask{};
  if (dims.empty()) mask.fill(true);
  for (int d : dims) {
    bool& entry = mask[static_cast<std::size_t>(normalize_dim(d, ndim, where))];
    TESSERA_CHECK(!entry, where, "dim {} is listed twice; name each dim once", d);
    entry = true;
  }
  return mask;
}

DType result_dtype(ReduceOp op, DType dtype) {
  if (op == ReduceOp::kSumOfSquares) return DType::kF64;
  return is_floating(dtype) ? dtype : DType::kI64;
}

// The view with the kept dims before the reduced ones, each group merged as far as it goes.
ReduceKernel::Args arguments(ConstView x, View y, const DimMask& mask, ReduceOp op) {
  Shape shapes[2], strides[2];
  for (int d = 0; d < x.shape.ndim(); ++d) {
    const bool reduced = mask[static_cast<std::size_t>(d)];
    shapes[reduced].push_back(x.shape[d]);
    strides[reduced].push_back(x.strides[d]);
  }
  merge_dims(shapes[0], {&strides[0]});
  merge_dims(shapes[1], {&strides[1]});
  x.shape = shapes[0];
  x.strides = strides[0];
  for (int d = 0; d < shapes[1].ndim(); ++d) {
    x.shape.push_back(shapes[1][d]);
    x.strides.push_back(strides[1][d]);
  }
  return {.x = x, .y = y, .kept_dims = shapes[0].ndim(), .op = op};
}

Tensor reduce(const Tensor& x, const DimMask& mask, bool keep_dims, ReduceOp op) {
  Shape shape;
  for (int d = 0; d < x.ndim(); ++d) {
    if (!mask[static_cast<std::size_t>(d)]) shape.push_back(x.dim(d));
    if (mask[static_cast<std::size_t>(d)] && keep_dims) shape.push_back(1);
  }
  const Tensor out =
      Tensor::empty(shape, {.dtype = result_dtype(op, x.dtype()), .device = x.device()});
  launch<ReduceKernel>(x.device(), arguments(read(x), write(out), mask, op));
  return out;
}

}  // namespace

Tensor sum(const Tensor& x, std::initializer_list<int> dims, bool keep_dims) {
  ops::check_defined("sum", "the tensor", x);
  return reduce(x, mask_of("sum", dims, x.ndim()), keep_dims, ReduceOp::kSum);
}

Tensor mean(const Tensor& x, std::initializer_list<int> dims, bool keep_dims) {
  ops::check_defined("mean", "the tensor", x);
  ops::check_floating("mean", x);
  return reduce(x, mask_of("mean", dims, x.ndim()), keep_dims, ReduceOp::kMean);
}

Tensor sum_of_squares(const Tensor& x) {
  ops::check_defined("sum_of_squares", "the tensor", x);
  ops::check_floating("sum_of_squares", x);
  return reduce(x, mask_of("sum_of_squares", {}, x.ndim()), false, ReduceOp::kSumOfSquares);
}

Tensor argmax(const Tensor& x) {
  ops::check_defined("argmax", "the tensor", x);
  TESSERA_CHECK(x.ndim() >= 1, "argmax", "needs at least 1 dim, got a 0-d tensor; unsqueeze it");
  const std::int64_t n = x.dim(-1);
  TESSERA_CHECK(n > 0, "argmax", "the last dim of {} is empty; there is no largest element",
                x.shape().str());
  const Tensor out =
      Tensor::empty(x.shape().without(x.ndim() - 1), {.dtype = DType::kI64, .device = x.device()});
  const std::int64_t rows = out.numel();
  launch<ArgmaxKernel>(x.device(),
                       {.x = read(contiguous(x).view({rows, n})), .y = write(out.view({rows}))});
  return out;
}

Tensor sum_to_shape(const Tensor& x, const Shape& shape) {
  ops::check_defined("sum_to_shape", "the tensor", x);
  const int extra = x.ndim() - shape.ndim();
  DimMask mask{};
  bool possible = extra >= 0;
  for (int d = 0; possible && d < x.ndim(); ++d) {
    const std::int64_t wanted = d < extra ? 1 : shape[d - extra];
    mask[static_cast<std::size_t>(d)] = d < extra || wanted != x.dim(d);
    possible = wanted == 1 || wanted == x.dim(d);
  }
  TESSERA_CHECK(possible, "sum_to_shape",
                "{} does not broadcast to {}; only broadcast dims can be summed away", shape.str(),
                x.shape().str());
  if (shape == x.shape()) return x;
  return reduce(x, mask, false, ReduceOp::kSum).view(shape);
}

}  // namespace tessera
