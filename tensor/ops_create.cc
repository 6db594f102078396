#include "tessera/tensor/ops_create.h"

#include "tessera/tensor/kernels/axpby.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/op_checks.h"

namespace tessera {

Tensor zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0, options); }

Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1, options); }

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  Tensor out = Tensor::empty(shape, options);
  fill(out, value);
  return out;
}

Tensor zeros_like(const Tensor& x) {
  ops::check_defined("zeros_like", "the tensor", x);
  return zeros(x.shape(), x.options());
}

Tensor arange(std::int64_t n, const TensorOptions& options) {
  TESSERA_CHECK(n >= 0, "arange", "the count is {}; it must not be negative", n);
  TESSERA_CHECK(options.dtype != DType::kU8 || n <= 256, "arange",
                "u8 holds 256 numbers, asked for {}; use i64", n);
  const Tensor out = Tensor::empty({n}, options);
  launch<ArangeKernel>(out.device(), {.y = write(out)});
  return out;
}

void fill(const Tensor& out, double value) {
  ops::check_defined("fill", "the tensor", out);
  AxpbyKernel::Args args = {.x = {}, .y = write(out), .alpha = 0, .beta = 0, .gamma = value};
  sort_and_merge_dims(args.y.shape, {&args.y.strides});
  launch<AxpbyKernel>(out.device(), args);
}

}  // namespace tessera
