#include "tessera/tensor/ops/rotary.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/rotary.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
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
