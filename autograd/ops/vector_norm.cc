#include <cmath>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/ops/reduced_dims.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"

namespace tessera {
namespace {

using detail::spread;

// d norm / d x.
Variable slope(const Variable& x, const Variable& y, double p, const Shape& kept) {
  const Tensor& from = x.tensor();
  if (p == 0) return Variable(zeros(from.shape(), from.options()));
  if (p == 1) return Variable(sign(from));
  if (std::isinf(p)) {
    const Tensor extreme = eq(abs(from), contiguous(y.tensor()).view(kept));
    return Variable(mul(sign(from), detail::shares(extreme, kept, from.dtype())));
  }
  const Variable divisor = spread(masked_fill(y, eq(y.tensor(), 0), 1), kept, from.shape());
  if (p == 2) return div(x, divisor);
  // sign (|x| / norm)^(p - 1), apart from elements that are 0.
  const Tensor none = eq(from, 0);
  const Variable ratio = div(masked_fill(abs(x), none, 1), divisor);
  return masked_fill(mul(pow(ratio, p - 1), Variable(sign(from))), none, 0);
}

}  // namespace

Variable norm(const Variable& x, const Dims& dims, const NormOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("norm"), [&](auto&... v) { return norm(v..., dims, options); }, x);
  const Tensor y = norm(x.tensor(), dims, options);
  return record_twice(
      "norm", y, {x},
      [p = options.p, kept = detail::kept_shape(x.shape(), dims), x = SavedVariable(x, "norm"),
       y = Saved(y, "norm")](const Variable& dy, const BackwardContext& context) {
        const Variable& from = x.unpack();
        const Variable result = context.output(0, y.unpack());
        return Gradients{mul(spread(dy, kept, from.shape()), slope(from, result, p, kept))};
      });
}

}  // namespace tessera
