#include "tessera/autograd/ops/nn.h"

#include <cstddef>
#include <limits>
#include <optional>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {

Variable softmax(const Variable& x, int dim) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("softmax"), [&](auto&... v) { return softmax(v..., dim); }, x);
  const Tensor y = softmax(x.tensor(), dim);
  return record_twice(
      "softmax", y, {x},
      [y = SavedTensor(y, "softmax"), dim](const Variable& dy, const BackwardContext& context) {
        if (!context.create_graph())
          return Gradients{Variable(softmax_backward(dy.tensor(), y.unpack(), dim))};
        const Variable kept = context.output(0, y.unpack());
        return Gradients{mul(kept, sub(dy, sum(mul(dy, kept), {dim}, true)))};
      });
}

Variable log_softmax(const Variable& x, int dim) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("log_softmax"), [&](auto&... v) { return log_softmax(v..., dim); }, x);
  const Tensor y = log_softmax(x.tensor(), dim);
  return record_twice(
      "log_softmax", y, {x},
      [y = SavedTensor(y, "log_softmax"), dim](const Variable& dy, const BackwardContext& context) {
        if (!context.create_graph())
          return Gradients{Variable(log_softmax_backward(dy.tensor(), y.unpack(), dim))};
        const Variable p = exp(context.output(0, y.unpack()));
        return Gradients{sub(dy, mul(p, sum(dy, {dim}, true)))};
      });
}

Variable softmax(const Variable& x, int dim, DType dtype) {
  return detail::in_dtype(x, dtype, [dim](const Variable& v) { return softmax(v, dim); });
}

Variable log_softmax(const Variable& x, int dim, DType dtype) {
  return detail::in_dtype(x, dtype, [dim](const Variable& v) { return log_softmax(v, dim); });
}

// A rotation: its derivative turns back.
Variable rotary(const Variable& x, const RotaryTable& table, const RotaryOptions& options) {
  return record_twice(
      "rotary", rotary(x.tensor(), table, options), {x},
      [cos = SavedTensor(table.cos, "rotary"), sin = SavedTensor(table.sin, "rotary"), options](
          const Variable& dy, const BackwardContext&) {
        const RotaryOptions back{.pairing = options.pairing, .inverse = !options.inverse};
        return Gradients{rotary(dy, {.cos = cos.unpack(), .sin = sin.unpack()}, back)};
      });
}

}  // namespace tessera
