#include "tessera/tensor/ops/nn.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/rotary.h"
#include "tessera/tensor/kernels/softmax.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

// x with `dim` moved to the end; the others keep their order. A 0-d tensor becomes [1].
Tensor with_last(const Tensor& tensor, int dim) {
  Tensor x = ops::as_line(tensor);
  for (int d = dim; d + 1 < x.ndim(); ++d) x = x.transpose(d, d + 1);
  return x;
}

// Checks, and returns the dim counted from the front.
int check_dim(const char* where, const Tensor& x, int dim) {
  ops::check_defined(where, "the tensor", x);
  ops::check_floating(where, x);
  return ops::along_dim(where, x, dim);
}

// In the dtype of x, or another.
Tensor launch_softmax(const char* where, const Tensor& operand, int dim, bool log,
                      std::optional<DType> dtype = {}) {
  ops::check_defined(where, "the tensor", operand);
  const Tensor x = dtype && *dtype != operand.dtype() ? cast(operand, *dtype) : operand;
  const int at = check_dim(where, x, dim);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  launch<SoftmaxKernel>(x.device(),
                        {.x = read(with_last(x, at)), .y = write(with_last(out, at)), .log = log});
  return out;
}

Tensor launch_backward(const char* where, const Tensor& dy, const Tensor& y, int dim, bool log) {
  const int at = check_dim(where, y, dim);
  ops::check_operands(where, dy, y);
  ops::check_same_shape(where, dy, y);
  const Tensor out = Tensor::empty(y.shape(), y.options());
  launch<SoftmaxBackwardKernel>(y.device(), {.dy = read(with_last(dy, at)),
                                             .y = read(with_last(y, at)),
                                             .dx = write(with_last(out, at)),
                                             .log = log});
  return out;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return launch_softmax("softmax", x, dim, false); }

Tensor log_softmax(const Tensor& x, int dim) { return launch_softmax("log_softmax", x, dim, true); }

Tensor softmax(const Tensor& x, int dim, DType dtype) {
  return launch_softmax("softmax", x, dim, false, dtype);
}

Tensor log_softmax(const Tensor& x, int dim, DType dtype) {
  return launch_softmax("log_softmax", x, dim, true, dtype);
}

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int dim) {
  return launch_backward("softmax_backward", dy, y, dim, false);
}

Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int dim) {
  return launch_backward("log_softmax_backward", dy, y, dim, true);
}

namespace {

void check_half(const Tensor& x, const char* name, const Tensor& half) {
  constexpr const char* kWhere = "rotary";
  ops::check_defined(kWhere, name, half);
  ops::check_same_device(kWhere, x, half);
  const DType dtype = compute_dtype(x.dtype());
  TESSERA_CHECK(half.dtype() == dtype, kWhere, "{} has dtype {}; an input of {} needs {}", name,
                dtype_name(half.dtype()), dtype_name(x.dtype()), dtype_name(dtype));
  TESSERA_CHECK(half.ndim() == 2 && half.dim(0) == x.dim(-3) && 2 * half.dim(1) <= x.dim(-1),
                kWhere,
                "{} has shape {}; an input [..., positions, heads, features] of shape {} needs "
                "[{}, {} or fewer]",
                name, half.shape().str(), x.shape().str(), x.dim(-3), x.dim(-1) / 2);
}

Tensor with_plain_rows(const Tensor& half) {
  return half.strides()[1] == 1 ? half : contiguous(half);
}

}  // namespace

RotaryTable rotary_table(std::int64_t positions, std::int64_t features,
                         const RotaryTableOptions& options) {
  constexpr const char* kWhere = "rotary_table";
  TESSERA_CHECK(positions >= 0 && features >= 0 && features % 2 == 0, kWhere,
                "got {} positions and {} features; features must be even, neither negative",
                positions, features);
  TESSERA_CHECK(options.base > 0 && options.offset >= 0, kWhere,
                "base is {} and offset {}; base must be above 0, offset not negative", options.base,
                options.offset);
  TESSERA_CHECK(options.dtype == DType::kF32 || options.dtype == DType::kF64, kWhere,
                "dtype is {}; the table is f32 or f64", dtype_name(options.dtype));
  const Shape shape{positions, features / 2};
  const TensorOptions kind{.dtype = options.dtype, .device = options.device};
  const RotaryTable out{.cos = Tensor::empty(shape, kind), .sin = Tensor::empty(shape, kind)};
  launch<RotaryTableKernel>(options.device, {.cos = write(out.cos),
                                             .sin = write(out.sin),
                                             .base = options.base,
                                             .offset = options.offset});
  return out;
}

Tensor rotary(const Tensor& x, const RotaryTable& table, const RotaryOptions& options) {
  ops::check_defined("rotary", "the tensor", x);
  ops::check_floating("rotary", x);
  TESSERA_CHECK(x.ndim() >= 3, "rotary",
                "needs an input [..., positions, heads, features], got shape {}", x.shape().str());
  check_half(x, "cos", table.cos);
  check_half(x, "sin", table.sin);
  ops::check_same_shape("rotary", table.cos, table.sin);
  const Tensor cos = with_plain_rows(table.cos), sin = with_plain_rows(table.sin);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  launch<RotaryKernel>(x.device(), {.x = read(x),
                                    .cos = read(cos),
                                    .sin = read(sin),
                                    .y = write(out),
                                    .interleaved = options.pairing == RotaryPairing::kNeighbours,
                                    .inverse = options.inverse});
  return out;
}

}  // namespace tessera
