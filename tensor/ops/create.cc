#include "tessera/tensor/ops/create.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/fill.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

// Bytes that a GPU's kernels for products read at once.
constexpr std::size_t kRowAlignment = 16;

// The largest value of an integer dtype.
double largest(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 1;
    case DType::kU8:
      return 255;
    case DType::kI32:
      return 0x1p31 - 1;
    case DType::kI64:
      return 0x1p53;
    case DType::kF32:
    case DType::kF64:
    case DType::kBF16:
    case DType::kF16:
      break;
  }
  return std::numeric_limits<double>::infinity();
}

void check_holds(const char* where, double number, DType dtype) {
  const bool is_signed = dtype != DType::kBool && dtype != DType::kU8;
  TESSERA_CHECK(number <= largest(dtype) && number >= (is_signed ? -largest(dtype) - 1 : 0), where,
                "{} does not hold {}; use a wider dtype", dtype_name(dtype), number);
}

struct Sequence {
  std::int64_t count;
  double first;
  double step;
  double last;
  std::int64_t mirror;  // the index of the first element that is computed from the end
};

Tensor sequence(const Sequence& numbers, const TensorOptions& options) {
  const Tensor out = Tensor::empty({numbers.count}, options);
  launch<ArangeKernel>(out.device(), {.y = write(out),
                                      .first = numbers.first,
                                      .step = numbers.step,
                                      .last = numbers.last,
                                      .mirror = numbers.mirror});
  return out;
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return Tensor::empty(shape, options);
}

std::int64_t pitch_of(std::int64_t width, RowPitch pitch, const TensorOptions& options) {
  if (pitch == RowPitch::kPacked || !options.device.is_cuda() || width <= 1) return width;
  const auto unit = static_cast<std::int64_t>(kRowAlignment / dtype_size(options.dtype));
  return (width + unit - 1) / unit * unit;
}

Tensor empty_rows(const Shape& shape, RowPitch pitch, const TensorOptions& options) {
  const int last = shape.ndim() - 1;
  if (last < 0) return Tensor::empty(shape, options);
  const std::int64_t width = shape[last], whole = pitch_of(width, pitch, options);
  const Tensor rows = Tensor::empty(shape.with(last, whole), options);
  return whole == width ? rows : rows.narrow(last, 0, width);
}

Tensor zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0, options); }

Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1, options); }

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  Tensor out = Tensor::empty(shape, options);
  fill_(out, value);
  return out;
}

Tensor zeros_like(const Tensor& x) {
  ops::check_defined("zeros_like", "the tensor", x);
  return zeros(x.shape(), x.options());
}

Tensor ones_like(const Tensor& x) {
  ops::check_defined("ones_like", "the tensor", x);
  return ones(x.shape(), x.options());
}

Tensor full_like(const Tensor& x, double value) {
  ops::check_defined("full_like", "the tensor", x);
  return full(x.shape(), value, x.options());
}

Tensor empty_like(const Tensor& x) {
  ops::check_defined("empty_like", "the tensor", x);
  return Tensor::empty(x.shape(), x.options());
}

Tensor arange(std::int64_t n, const TensorOptions& options) {
  TESSERA_CHECK(n >= 0, "arange", "the count is {}; it must not be negative", n);
  const auto last = static_cast<double>(n - 1);
  if (n > 0) check_holds("arange", last, options.dtype);
  return sequence({n, 0, 1, last, n}, options);
}

Tensor arange(double start, double end, double step, const TensorOptions& options) {
  // The count cannot tell: it is also 0 if `end` lies less than a step in the wrong direction.
  const bool leads_there = (step > 0 && end >= start) || (step < 0 && end <= start);
  const double count = std::ceil((end - start) / step);
  TESSERA_CHECK(leads_there && std::isfinite(count), "arange",
                "no steps of {} lead from {} to {}; turn the sign of the step, or swap the ends",
                step, start, end);
  TESSERA_CHECK(count <= 0x1p53, "arange", "steps of {} from {} to {} are {}; make them longer",
                step, start, end, count);
  const double last = start + step * (count - 1);
  if (count > 0) {
    check_holds("arange", start, options.dtype);
    check_holds("arange", last, options.dtype);
  }
  const auto n = static_cast<std::int64_t>(count);
  return sequence({n, start, step, last, n}, options);
}

Tensor linspace(double start, double end, std::int64_t count, const TensorOptions& options) {
  TESSERA_CHECK(count >= 0, "linspace", "the count is {}; it must not be negative", count);
  TESSERA_CHECK(is_floating(options.dtype), "linspace",
                "needs a floating dtype, got {}; use arange for whole numbers",
                dtype_name(options.dtype));
  const double step = count > 1 ? (end - start) / static_cast<double>(count - 1) : 0;
  return sequence({count, start, step, end, (count + 1) / 2}, options);
}

Tensor logspace(double start, double end, std::int64_t count, double base,
                const TensorOptions& options) {
  TESSERA_CHECK(count >= 0, "logspace", "the count is {}; it must not be negative", count);
  TESSERA_CHECK(is_floating(options.dtype), "logspace", "needs a floating dtype, got {}",
                dtype_name(options.dtype));
  TensorOptions wide = options;
  wide.dtype = DType::kF64;
  const Tensor numbers = pow(base, linspace(start, end, count, wide));
  return options.dtype == DType::kF64 ? numbers : cast(numbers, options.dtype);
}

Tensor eye(std::int64_t rows, std::int64_t columns, const TensorOptions& options) {
  TESSERA_CHECK(rows >= 0, "eye", "the number of rows is {}; it must not be negative", rows);
  const std::int64_t width = columns < 0 ? rows : columns;
  Tensor out = zeros({rows, width}, options);
  const std::int64_t diagonal = std::min(rows, width);
  if (diagonal > 0)
    fill_(Tensor::over(out.storage(), {diagonal}, {width + 1}, out.offset(), out.dtype()), 1);
  return out;
}

namespace {

void fill(const char* where, const Tensor& out, double value) {
  ops::check_defined(where, "the tensor", out);
  ops::check_writable(where, out);
  AxpbyKernel::Args args = {
      .x = {}, .y = overwrite(out, where), .alpha = 0, .beta = 0, .number = value};
  sort_and_merge_dims(args.y.shape, {&args.y.strides});
  launch<AxpbyKernel>(out.device(), args);
}

}  // namespace

void fill_(const Tensor& out, double value) { fill("fill_", out, value); }

void zero_(const Tensor& out) { fill("zero_", out, 0); }

}  // namespace tessera
