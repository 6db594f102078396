#include "tessera/tensor/ops/reduce.h"

#include <cmath>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/composed/nan_reductions.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

// The reduction, and the dims that it reduces.
struct Reduction {
  ReduceOp op;
  DimMask mask{};
  bool keep_dims = false;
  DType dtype = DType::kF32;  // dtype of the result
  double parameter = 0;
  Tensor shift{};

  Reduction with_op(ReduceOp other, DType other_dtype) const {
    Reduction r = *this;
    r.op = other;
    r.dtype = other_dtype;
    return r;
  }
};

DType sum_dtype(DType dtype) { return is_floating(dtype) ? dtype : DType::kI64; }

Reduction reduction(const char* where, ReduceOp op, const Tensor& x, const DimList& dims) {
  ops::check_defined(where, "the tensor", x);
  Reduction r{.op = op, .mask = dim_mask(dims, x.ndim(), where), .dtype = x.dtype()};
  if (dims.empty()) r.mask.fill(true);
  return r;
}

Reduction floating_reduction(const char* where, ReduceOp op, const Tensor& x, const DimList& dims) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  return reduction(where, op, x, dims);
}

// The view with the kept dims before the reduced ones, each of the two groups merged where
// possible.
ReduceKernel::Args arguments(ConstView x, View y, const Reduction& r) {
  Shape shapes[2], strides[2];
  for (int d = 0; d < x.shape.ndim(); ++d) {
    const bool reduced = r.mask[static_cast<std::size_t>(d)];
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
  return {.x = x, .y = y, .kept_dims = shapes[0].ndim(), .op = r.op, .parameter = r.parameter};
}

Shape result_shape(const Tensor& x, const Reduction& r) {
  Shape shape;
  for (int d = 0; d < x.ndim(); ++d) {
    if (!r.mask[static_cast<std::size_t>(d)]) shape.push_back(x.dim(d));
    if (r.mask[static_cast<std::size_t>(d)] && r.keep_dims) shape.push_back(1);
  }
  return shape;
}

Tensor run(const Tensor& x, const Reduction& r) {
  const Tensor out = Tensor::empty(result_shape(x, r), {.dtype = r.dtype, .device = x.device()});
  ReduceKernel::Args args = arguments(read(x), write(out), r);
  if (r.shift.defined()) args.shift = read(r.shift);
  launch<ReduceKernel>(x.device(), args);
  return out;
}

// A sum, mean or product; x is defined.
Tensor folded(const char* where, ReduceOp op, const Tensor& x, const DimList& dims,
              const ReduceOptions& options) {
  const Tensor operand = ops::converted(x, options.dtype);
  Reduction r = reduction(where, op, operand, dims);
  r.keep_dims = options.keep_dims;
  r.dtype = options.dtype.value_or(sum_dtype(x.dtype()));
  return run(operand, r);
}

// No elements have no extreme.
void check_elements(const char* where, const Tensor& x, const Reduction& r) {
  TESSERA_CHECK(x.numel() > 0 || result_shape(x, r).numel() == 0, where,
                "the reduced dims of shape {} have no elements; there is nothing to choose",
                x.shape().str());
}

// Deviations around `shift`, which another reduction over the same dims computes.
Tensor around(const Tensor& x, Reduction r, ReduceOp shift) {
  r.shift = run(x, r.with_op(shift, DType::kF64));
  return run(x, r);
}

Reduction var_reduction(const char* where, ReduceOp op, const Tensor& x, const DimList& dims,
                        const VarOptions& options) {
  Reduction r = floating_reduction(where, op, x, dims);
  r.keep_dims = options.keep_dims;
  r.parameter = options.correction;
  return r;
}

ReduceOp norm_op(double p) {
  if (p == 2) return ReduceOp::kNorm2;
  if (p == 1) return ReduceOp::kSumAbs;
  if (p == 0) return ReduceOp::kCountNonzero;
  if (std::isinf(p)) return p > 0 ? ReduceOp::kMaxAbs : ReduceOp::kMinAbs;
  return ReduceOp::kNormP;
}

}  // namespace

Tensor sum(const Tensor& x, const DimList& dims, bool keep_dims) {
  return sum(x, dims, ReduceOptions{.keep_dims = keep_dims});
}

Tensor sum(const Tensor& x, const DimList& dims, const ReduceOptions& options) {
  ops::check_defined("sum", "the tensor", x);
  return folded("sum", ReduceOp::kSum, x, dims, options);
}

Tensor mean(const Tensor& x, const DimList& dims, bool keep_dims) {
  return mean(x, dims, ReduceOptions{.keep_dims = keep_dims});
}

Tensor mean(const Tensor& x, const DimList& dims, const ReduceOptions& options) {
  ops::check_defined("mean", "the tensor", x);
  const DType dtype = options.dtype.value_or(x.dtype());
  TESSERA_CHECK(is_floating(dtype), "mean", "needs a floating dtype, got {}; cast it first",
                dtype_name(dtype));
  return folded("mean", ReduceOp::kMean, x, dims, options);
}

Tensor prod(const Tensor& x, const DimList& dims, bool keep_dims) {
  return prod(x, dims, ReduceOptions{.keep_dims = keep_dims});
}

Tensor prod(const Tensor& x, const DimList& dims, const ReduceOptions& options) {
  ops::check_defined("prod", "the tensor", x);
  return folded("prod", ReduceOp::kProd, x, dims, options);
}

Tensor amax(const Tensor& x, const DimList& dims, bool keep_dims) {
  Reduction r = reduction("amax", ReduceOp::kMax, x, dims);
  r.keep_dims = keep_dims;
  check_elements("amax", x, r);
  return run(x, r);
}

Tensor amin(const Tensor& x, const DimList& dims, bool keep_dims) {
  Reduction r = reduction("amin", ReduceOp::kMin, x, dims);
  r.keep_dims = keep_dims;
  check_elements("amin", x, r);
  return run(x, r);
}

MinMax aminmax(const Tensor& x, const DimList& dims, bool keep_dims) {
  Reduction r = reduction("aminmax", ReduceOp::kMin, x, dims);
  r.keep_dims = keep_dims;
  check_elements("aminmax", x, r);
  return {.min = run(x, r), .max = run(x, r.with_op(ReduceOp::kMax, r.dtype))};
}

Tensor nansum(const Tensor& x, const DimList& dims, bool keep_dims) {
  return composed::nansum(x, dims, keep_dims);
}

Tensor nanmean(const Tensor& x, const DimList& dims, bool keep_dims) {
  return composed::nanmean(x, dims, keep_dims);
}

Tensor count_nonzero(const Tensor& x, const DimList& dims, bool keep_dims) {
  Reduction r = reduction("count_nonzero", ReduceOp::kCountNonzero, x, dims);
  r.keep_dims = keep_dims;
  r.dtype = DType::kI64;
  return run(x, r);
}

Tensor detail::any_nonzero(const Tensor& x, const DimList& dims, bool keep_dims) {
  Reduction r = reduction("any", ReduceOp::kAny, x, dims);
  r.keep_dims = keep_dims;
  r.dtype = DType::kBool;
  return run(x, r);
}

Tensor detail::all_nonzero(const Tensor& x, const DimList& dims, bool keep_dims) {
  Reduction r = reduction("all", ReduceOp::kAll, x, dims);
  r.keep_dims = keep_dims;
  r.dtype = DType::kBool;
  return run(x, r);
}

Tensor logsumexp(const Tensor& x, const DimList& dims, bool keep_dims) {
  Reduction r = floating_reduction("logsumexp", ReduceOp::kLogSumExp, x, dims);
  r.keep_dims = keep_dims;
  return around(x, r, ReduceOp::kMax);
}

Tensor var(const Tensor& x, const DimList& dims, const VarOptions& options) {
  return around(x, var_reduction("var", ReduceOp::kVar, x, dims, options), ReduceOp::kMean);
}

Tensor stddev(const Tensor& x, const DimList& dims, const VarOptions& options) {
  return around(x, var_reduction("stddev", ReduceOp::kStddev, x, dims, options), ReduceOp::kMean);
}

VarMean var_mean(const Tensor& x, const DimList& dims, const VarOptions& options) {
  const Reduction r = var_reduction("var_mean", ReduceOp::kVar, x, dims, options);
  return {.var = around(x, r, ReduceOp::kMean),
          .mean = run(x, r.with_op(ReduceOp::kMean, r.dtype))};
}

StdMean std_mean(const Tensor& x, const DimList& dims, const VarOptions& options) {
  const Reduction r = var_reduction("std_mean", ReduceOp::kStddev, x, dims, options);
  return {.stddev = around(x, r, ReduceOp::kMean),
          .mean = run(x, r.with_op(ReduceOp::kMean, r.dtype))};
}

Tensor norm(const Tensor& x, const DimList& dims, const NormOptions& options) {
  TESSERA_CHECK(!std::isnan(options.p), "norm", "p is NaN; give a number or an infinity");
  Reduction r = floating_reduction("norm", norm_op(options.p), x, dims);
  r.keep_dims = options.keep_dims;
  r.parameter = options.p;
  if (std::isinf(options.p)) check_elements("norm", x, r);
  return run(x, r);
}

Tensor sum_of_squares(const Tensor& x) {
  Reduction r = floating_reduction("sum_of_squares", ReduceOp::kSumOfSquares, x, {});
  r.dtype = DType::kF64;
  return run(x, r);
}

Tensor sum_of_squares(const std::vector<Tensor>& tensors) {
  constexpr const char* kWhere = "sum_of_squares";
  TESSERA_CHECK(!tensors.empty(), kWhere, "the list has no tensors; pass at least one");
  std::vector<Tensor> parts;  // kept until the launch has their addresses
  SquaresListKernel::Args args;
  for (const Tensor& x : tensors) {
    ops::check_defined(kWhere, "a tensor of the list", x);
    ops::check_floating(kWhere, x);
    ops::check_same_device(kWhere, tensors.front(), x);
    parts.push_back(contiguous(x));
    args.tensors.push_back(read(parts.back()));
  }
  const Device device = tensors.front().device();
  const Tensor out = Tensor::empty({}, {.dtype = DType::kF64, .device = device});
  args.y = write(out);
  launch<SquaresListKernel>(device, args);
  return out;
}

void sum_rows_(const Tensor& out, const Tensor& x, double beta) {
  constexpr const char* kWhere = "sum_rows_";
  ops::check_defined(kWhere, "the matrix", x);
  ops::check_defined(kWhere, "the result", out);
  TESSERA_CHECK((x.dtype() == DType::kBF16 || x.dtype() == DType::kF16) && x.ndim() == 2, kWhere,
                "the matrix is {} of shape {}; it must have two dims, and be bf16 or f16",
                dtype_name(x.dtype()), x.shape().str());
  TESSERA_CHECK(out.dtype() == DType::kF32 && out.shape() == Shape{x.dim(1)} && out.is_contiguous(),
                kWhere,
                "the result is {} of shape {}; a matrix of shape {} needs f32 of shape [{}], "
                "contiguous",
                dtype_name(out.dtype()), out.shape().str(), x.shape().str(), x.dim(1));
  ops::check_same_device(kWhere, out, x);
  const Tensor rows = x.dim(1) < 2 || x.strides()[1] == 1 ? x : contiguous(x);
  launch<RowSumKernel>(x.device(), {.x = read(rows), .y = write(out), .beta = beta});
}

Tensor sum_to_shape(const Tensor& x, const Shape& shape) {
  ops::check_defined("sum_to_shape", "the tensor", x);
  const int extra = x.ndim() - shape.ndim();
  Reduction r{.op = ReduceOp::kSum, .dtype = sum_dtype(x.dtype())};
  bool possible = extra >= 0;
  for (int d = 0; possible && d < x.ndim(); ++d) {
    const std::int64_t wanted = d < extra ? 1 : shape[d - extra];
    r.mask[static_cast<std::size_t>(d)] = d < extra || wanted != x.dim(d);
    possible = wanted == 1 || wanted == x.dim(d);
  }
  TESSERA_CHECK(possible, "sum_to_shape",
                "{} does not broadcast to {}; only broadcast dims can be summed away", shape.str(),
                x.shape().str());
  if (shape == x.shape()) return x;
  return run(x, r).view(shape);
}

}  // namespace tessera
