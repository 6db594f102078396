#include "tessera/autograd/function.h"
#include "tessera/autograd/ops.h"
#include "tessera/autograd/ops_internal.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera {
namespace detail {
namespace {

Variable contiguous(const Variable& x) {
  if (x.tensor().is_contiguous()) return x;
  return record_twice("contiguous", tessera::contiguous(x.tensor()), {x},
                      [](const Variable& dy, const BackwardContext&) { return Gradients{dy}; });
}

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  return x.shape() == shape ? x : view(contiguous(x), shape);
}

Variable place(const Variable& x, const Shape& shape, int dim, std::int64_t start) {
  const std::int64_t end = start + x.dim(dim);
  const Tensor out = zeros(shape, x.tensor().options());
  copy_(out.slice(dim, start, end), x.tensor());
  return record_twice("place", out, {x},
                      [dim, start, end](const Variable& dy, const BackwardContext&) {
                        return Gradients{slice(dy, dim, start, end)};
                      });
}

}  // namespace detail

Variable view(const Variable& x, const Shape& shape) {
  return record_twice("view", x.tensor().view(shape), {x},
                      [from = x.shape()](const Variable& dy, const BackwardContext&) {
                        return Gradients{detail::reshape(dy, from)};
                      });
}

Variable transpose(const Variable& x, int dim0, int dim1) {
  return record_twice("transpose", x.tensor().transpose(dim0, dim1), {x},
                      [dim0, dim1](const Variable& dy, const BackwardContext&) {
                        return Gradients{transpose(dy, dim0, dim1)};
                      });
}

Variable slice(const Variable& x, int dim, std::int64_t start, std::int64_t end) {
  return record_twice("slice", x.tensor().slice(dim, start, end), {x},
                      [from = x.shape(), dim, start](const Variable& dy, const BackwardContext&) {
                        return Gradients{detail::place(dy, from, dim, start)};
                      });
}

Variable expand(const Variable& x, const Shape& shape) {
  return record_twice("expand", x.tensor().expand(shape), {x},
                      [from = x.shape()](const Variable& dy, const BackwardContext&) {
                        return Gradients{sum_to_shape(dy, from)};
                      });
}

}  // namespace tessera
