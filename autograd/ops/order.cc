#include "tessera/autograd/ops/order.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/choice.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/ops/reduced_dims.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {

namespace {

// dy at `positions` along `dim`, among zeros.
Variable placed(const Variable& dy, int dim, const Tensor& positions, const Shape& from,
                detail::Chosen times) {
  const Tensor dx = zeros(from, dy.tensor().options());
  times == detail::Chosen::kOnce ? scatter_(dx, dim, positions, dy.tensor())
                                 : scatter_add_(dx, dim, positions, dy.tensor());
  return record_twice("choice_backward", dx, {dy},
                      [dim, positions = SavedTensor(positions, "choice_backward")](
                          const Variable& ddx, const BackwardContext&) {
                        return Gradients{gather(ddx, dim, positions.unpack())};
                      });
}

}  // namespace

VariableAndIndices detail::record_choice(const char* name, const Variable& x, int dim,
                                         ValuesAndIndices chosen, Chosen times) {
  const bool dropped = chosen.indices.ndim() < x.ndim();
  const Tensor index =
      dropped ? chosen.indices.view(x.shape().with(normalize_dim(dim, x.ndim(), name), 1))
              : chosen.indices;
  Variable values = record_twice(
      name, std::move(chosen.values), {x},
      [dim, times, index = SavedTensor(index, name), from = x.shape()](const Variable& dy,
                                                                       const BackwardContext&) {
        const Tensor& positions = index.unpack();
        return Gradients{placed(reshape(dy, positions.shape()), dim, positions, from, times)};
      });
  return {.values = std::move(values), .indices = std::move(chosen.indices)};
}

namespace {

using detail::record_choice;

// y, one element of all of x; those that equal it share the gradient evenly.
Variable record_shared_choice(const char* name, const Variable& x, const Tensor& y) {
  return record_twice(
      name, y, {x},
      [x = SavedTensor(x, name), y = SavedTensor(y, name)](const Variable& dy,
                                                           const BackwardContext&) {
        const Tensor &from = x.unpack(), &value = y.unpack();
        const Tensor equal = logical_or(eq(from, value), logical_and(isnan(from), isnan(value)));
        const Shape kept = Shape::filled(from.ndim(), 1);
        const Tensor share = detail::shares(equal, kept, from.dtype());
        return Gradients{mul(detail::spread(dy, kept, from.shape()), Variable(share))};
      });
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

VariableAndIndices kthvalue(const Variable& x, std::int64_t k, int dim, bool keep_dims) {
  return record_choice("kthvalue", x, dim, kthvalue(x.tensor(), k, dim, keep_dims));
}

VariableAndIndices median(const Variable& x, int dim, bool keep_dims) {
  return record_choice("median", x, dim, median(x.tensor(), dim, keep_dims));
}

VariableAndIndices nanmedian(const Variable& x, int dim, bool keep_dims) {
  return record_choice("nanmedian", x, dim, nanmedian(x.tensor(), dim, keep_dims));
}

Variable median(const Variable& x) { return record_shared_choice("median", x, median(x.tensor())); }

Variable nanmedian(const Variable& x) {
  return record_shared_choice("nanmedian", x, nanmedian(x.tensor()));
}

VariableAndIndices mode(const Variable& x, int dim, bool keep_dims) {
  return record_choice("mode", x, dim, mode(x.tensor(), dim, keep_dims));
}

}  // namespace tessera
