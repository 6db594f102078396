#include "tessera/autograd/ops/order.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/create.h"

namespace tessera {
namespace {

// `chosen` was taken from x along `dim`; its gradient goes back there.
VariableAndIndices record_choice(const char* name, const Variable& x, int dim,
                                 ValuesAndIndices chosen) {
  const Shape rows = x.shape().with(normalize_dim(dim, x.ndim(), name), 1);
  const bool dropped = chosen.indices.ndim() < x.ndim();
  const Tensor index = dropped ? chosen.indices.view(rows) : chosen.indices;
  Variable values = record_twice(
      name, std::move(chosen.values), {x},
      [dim, index = Saved(index, name), from = x.shape()](const Variable& dy,
                                                          const BackwardContext&) {
        const Tensor& positions = index.unpack();
        const Variable none(zeros(from, dy.tensor().options()));
        return Gradients{scatter_add(none, dim, positions, reshape(dy, positions.shape()))};
      });
  return {.values = std::move(values), .indices = std::move(chosen.indices)};
}

}  // namespace

VariableAndIndices max(const Variable& x, int dim, bool keep_dims) {
  return record_choice("max", x, dim, max(x.tensor(), dim, keep_dims));
}

VariableAndIndices min(const Variable& x, int dim, bool keep_dims) {
  return record_choice("min", x, dim, min(x.tensor(), dim, keep_dims));
}

Variable max(const Variable& x) { return amax(x); }

Variable min(const Variable& x) { return amin(x); }

VariableAndIndices sort(const Variable& x, int dim, const SortOptions& options) {
  return record_choice("sort", x, dim, sort(x.tensor(), dim, options));
}

VariableAndIndices topk(const Variable& x, std::int64_t k, int dim, const TopkOptions& options) {
  return record_choice("topk", x, dim, topk(x.tensor(), k, dim, options));
}

}  // namespace tessera
