#include "tessera/tensor/ops/dropout.h"

#include "tessera/tensor/kernels/dropout.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {

Tensor dropout(const Tensor& x, double p, random::Key key, const random::Box& box) {
  constexpr const char* kWhere = "dropout";
  ops::check_defined(kWhere, "the tensor", x);
  ops::check_floating(kWhere, x);
  TESSERA_CHECK(p >= 0 && p <= 1, kWhere, "p is {}; it must lie in [0, 1]", p);
  bool inside = box.global.ndim() == x.ndim() && box.offset.ndim() == x.ndim();
  for (int d = 0; inside && d < x.ndim(); ++d)
    inside = box.offset[d] >= 0 && box.offset[d] + x.dim(d) <= box.global[d];
  TESSERA_CHECK(inside, kWhere, "a box of shape {} at {} does not lie inside the global shape {}",
                x.shape().str(), box.offset.str(), box.global.str());
  const Tensor out = Tensor::empty(x.shape(), x.options());
  DropoutKernel::Args args{.x = read(x),
                           .y = write(out),
                           .key = key.value,
                           .position_strides = contiguous_strides(box.global),
                           .p = p,
                           .scale = p < 1 ? 1 / (1 - p) : 0};
  for (int d = 0; d < x.ndim(); ++d)
    args.first_position += box.offset[d] * args.position_strides[d];
  launch<DropoutKernel>(x.device(), std::move(args));
  return out;
}

}  // namespace tessera
