/// Operations whose indices name whole slices of a dim.

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/index.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

// An index of index_add and its like as one of index_select.
Tensor as_list(const Tensor& index) { return index.ndim() == 0 ? index.unsqueeze(0) : index; }

// dy of a 0-d tensor as that of one element along dim 0.
Variable as_line(const Variable& dy) { return dy.ndim() == 0 ? reshape(dy, {1}) : dy; }

// The gradient of index_copy's source: of slices that went to one place only the last one's is not
// 0.
Variable source_gradient(const Variable& dy, int dim, const Tensor& index) {
  const Tensor own = arange(index.numel(), {.dtype = DType::kI64, .device = index.device()});
  const Tensor winners = index_copy(zeros({dy.dim(dim)}, own.options()), 0, index, own);
  const Tensor won = cast(eq(index_select(winners, 0, index), own), dy.dtype());
  Shape along = Shape::filled(dy.ndim(), 1);
  along[normalize_dim(dim, dy.ndim(), "index_copy")] = index.numel();
  return mul(index_select(dy, dim, index), Variable(won.view(along)));
}

}  // namespace

Variable index_add(const Variable& x, int dim, const Tensor& index, const Variable& src,
                   const IndexAddOptions& options) {
  return record_twice(
      "index_add", index_add(x.tensor(), dim, index, src.tensor(), options), {x, src},
      [dim, alpha = options.alpha, from = src.shape(), index = SavedTensor(index, "index_add")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = dy;
        if (!context.needs(1)) return gradients;
        const Variable chosen = index_select(as_line(dy), dim, as_list(index.unpack()));
        gradients[1] = reshape(alpha == 1 ? chosen : mul(chosen, alpha), from);
        return gradients;
      });
}

Variable index_copy(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  return record_twice("index_copy", index_copy(x.tensor(), dim, index, src.tensor()), {x, src},
                      [dim, from = src.shape(), index = SavedTensor(index, "index_copy")](
                          const Variable& dy, const BackwardContext& context) {
                        Gradients gradients(2);
                        const Tensor list = as_list(index.unpack());
                        if (context.needs(0)) gradients[0] = index_fill(dy, dim, list, 0);
                        if (context.needs(1))
                          gradients[1] = reshape(source_gradient(as_line(dy), dim, list), from);
                        return gradients;
                      });
}

Variable index_fill(const Variable& x, int dim, const Tensor& index, double value) {
  return record_twice(
      "index_fill", index_fill(x.tensor(), dim, index, value), {x},
      [dim, index = SavedTensor(index, "index_fill")](const Variable& dy, const BackwardContext&) {
        return Gradients{index_fill(dy, dim, index.unpack(), 0)};
      });
}

Variable index_fill(const Variable& x, int dim, const Tensor& index, const Variable& value) {
  return record_twice("index_fill", index_fill(x.tensor(), dim, index, value.tensor()), {x, value},
                      [dim, kind = value.dtype(), index = SavedTensor(index, "index_fill")](
                          const Variable& dy, const BackwardContext& context) {
                        Gradients gradients(2);
                        const Variable rest = index_fill(dy, dim, index.unpack(), 0);
                        if (context.needs(0)) gradients[0] = rest;
                        if (context.needs(1)) gradients[1] = cast(sum(sub(dy, rest)), kind);
                        return gradients;
                      });
}

}  // namespace tessera
