#include "tessera/autograd/ops/index.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/composed/masks.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

Variable zeros_of(const Shape& shape, const Variable& like) {
  return Variable(zeros(shape, like.tensor().options()));
}

// For n different numbers.
DType named_by(std::int64_t n) {
  return n <= std::numeric_limits<std::int32_t>::max() ? DType::kI32 : DType::kI64;
}

// 0, 1, 2, ... in `shape`: a name for each element that is moved.
Tensor names(const Shape& shape, Device device) {
  return arange(shape.numel(), {.dtype = named_by(shape.numel()), .device = device}).view(shape);
}

// dy along `dim`, added up where `index`, of dy's shape, says.
Variable added_up(const Variable& dy, int dim, const Tensor& index, const Shape& from) {
  const Tensor dx = zeros(from, dy.tensor().options());
  scatter_add_(dx, dim, index, dy.tensor());
  return record_twice("gather_backward", dx, {dy},
                      [dim, index = SavedTensor(index, "gather_backward")](const Variable& ddx,
                                                                           const BackwardContext&) {
                        return Gradients{gather(ddx, dim, index.unpack())};
                      });
}

// index [n] repeated to `shape`, whose `dim` has n elements.
Tensor repeated(const Tensor& index, int dim, const Shape& shape) {
  Tensor raised = index;
  for (int d = dim + 1; d < shape.ndim(); ++d) raised = raised.unsqueeze(-1);
  return raised.expand(shape);
}

// Negative indices, counted from the front.
Tensor from_front(const Tensor& index, std::int64_t extent) {
  return where(lt(index, 0), add(index, extent), index);
}

std::vector<SavedTensor> saved_list(const std::vector<Tensor>& tensors, const char* operation) {
  std::vector<SavedTensor> out;
  for (const Tensor& x : tensors) out.emplace_back(x, operation);
  return out;
}

std::vector<Tensor> unpacked(const std::vector<SavedTensor>& list) {
  std::vector<Tensor> out;
  for (const SavedTensor& saved : list) out.push_back(saved.unpack());
  return out;
}

// The same for several indices, of the leading dims.
Variable added_up(const Variable& dy, const std::vector<Tensor>& indices, const Shape& from) {
  const Tensor dx = zeros(from, dy.tensor().options());
  index_put_(dx, indices, dy.tensor(), {.accumulate = true});
  return record_twice("index_backward", dx, {dy},
                      [indices = saved_list(indices, "index_backward")](const Variable& ddx,
                                                                        const BackwardContext&) {
                        return Gradients{index(ddx, unpacked(indices))};
                      });
}

}  // namespace

Variable gather(const Variable& x, int dim, const Tensor& index) {
  return record_twice("gather", gather(x.tensor(), dim, index), {x},
                      [dim, from = x.shape(), index = SavedTensor(index, "gather")](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{added_up(dy, dim, index.unpack(), from)};
                      });
}

Variable take_along_dim(const Variable& x, const Tensor& index, int dim) {
  const Tensor y = take_along_dim(x.tensor(), index, dim);  // checks
  const int d = normalize_dim(dim, x.ndim(), "take_along_dim");
  return record_twice("take_along_dim", y, {x},
                      [d, from = x.shape(), index = SavedTensor(index, "take_along_dim")](
                          const Variable& dy, const BackwardContext&) {
                        const Tensor all = from_front(index.unpack(), from[d]).expand(dy.shape());
                        const Variable dx = added_up(dy, d, all, dy.shape().with(d, from[d]));
                        return Gradients{sum_to_shape(dx, from)};
                      });
}

namespace {

// The gradient of a source of shape `from`, of which the first elements were read: they have the
// gradient dx, of the index's shape. A 0-d index or source counts as [1].
Variable padded_to(const Variable& dx, const Shape& from) {
  if (dx.shape() == from) return dx;
  const Variable line = dx.ndim() == 0 ? reshape(dx, {1}) : dx;
  std::vector<Padding> rest;
  for (int d = 0; d < line.ndim(); ++d)
    rest.push_back({.after = (from.ndim() == 0 ? 1 : from[d]) - line.dim(d)});
  return reshape(pad(line, rest), from);
}

// Each element's place along `dim`, in the narrowest dtype: elements of one line never meet those of
// another.
Tensor places_along(int dim, const Tensor& index) {
  Shape along = Shape::filled(index.ndim(), 1);
  const int d = index.ndim() == 0 ? 0 : normalize_dim(dim, index.ndim(), "scatter");
  const std::int64_t n = index.ndim() == 0 ? 1 : index.dim(d);
  if (index.ndim() > 0) along[d] = n;
  const DType dtype = n <= 256 ? DType::kU8 : named_by(n);
  return arange(n, {.dtype = dtype, .device = index.device()}).view(along).expand(index.shape());
}

// The gradient of the source of a scatter: of those that went to one place only the last one's is
// not 0.
Variable source_gradient(const Variable& dy, int dim, const Tensor& index, const Shape& src) {
  const Tensor own = places_along(dim, index);
  const Tensor winners = Tensor::empty(dy.shape(), own.options());  // read where it is written
  scatter_(winners, dim, index, own);
  const Tensor lost = ne(gather(winners, dim, index), own);
  return padded_to(masked_fill(gather(dy, dim, index), lost, 0), src);
}

}  // namespace

Variable scatter(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  return record_twice("scatter", scatter(x.tensor(), dim, index, src.tensor()), {x, src},
                      [dim, from = src.shape(), index = SavedTensor(index, "scatter")](
                          const Variable& dy, const BackwardContext& context) {
                        Gradients gradients(2);
                        const Tensor& at = index.unpack();
                        if (context.needs(0)) gradients[0] = scatter(dy, dim, at, 0);
                        if (context.needs(1)) gradients[1] = source_gradient(dy, dim, at, from);
                        return gradients;
                      });
}

Variable scatter(const Variable& x, int dim, const Tensor& index, double value) {
  return record_twice(
      "scatter", scatter(x.tensor(), dim, index, value), {x},
      [dim, index = SavedTensor(index, "scatter")](const Variable& dy, const BackwardContext&) {
        return Gradients{scatter(dy, dim, index.unpack(), 0)};
      });
}

Variable scatter_add(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  return record_twice("scatter_add", scatter_add(x.tensor(), dim, index, src.tensor()), {x, src},
                      [dim, from = src.shape(), index = SavedTensor(index, "scatter_add")](
                          const Variable& dy, const BackwardContext& context) {
                        Gradients gradients(2);
                        if (context.needs(0)) gradients[0] = dy;
                        if (!context.needs(1)) return gradients;
                        gradients[1] = padded_to(gather(dy, dim, index.unpack()), from);
                        return gradients;
                      });
}

Variable index_select(const Variable& x, int dim, const Tensor& index) {
  const Tensor y = index_select(x.tensor(), dim, index);
  if (x.ndim() == 0) return gather(x, dim, index.view({}));
  return record_twice(
      "index_select", y, {x},
      [d = normalize_dim(dim, x.ndim(), "index_select"), from = x.shape(),
       index = SavedTensor(index, "index_select")](const Variable& dy, const BackwardContext&) {
        const Tensor at = index.unpack().view({dy.dim(d)});  // one index may be 0-d
        const Tensor all = repeated(at, d, dy.shape());
        return Gradients{added_up(dy, d, all, from)};
      });
}

Variable take(const Variable& x, const Tensor& index) {
  return record_twice("take", take(x.tensor(), index), {x},
                      [from = x.shape(), index = SavedTensor(index, "take")](
                          const Variable& dy, const BackwardContext&) {
                        const Variable dx = added_up(dy, {index.unpack()}, {from.numel()});
                        return Gradients{reshape(dx, from)};
                      });
}

Variable index(const Variable& x, const std::vector<Tensor>& given) {
  const std::vector<Tensor> indices = composed::without_masks("index", x.tensor(), given);
  return record_twice("index", index(x.tensor(), indices), {x},
                      [from = x.shape(), indices = saved_list(indices, "index")](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{added_up(dy, unpacked(indices), from)};
                      });
}

namespace {

// As source_gradient: dy at the indices, but for those that were overwritten.
Variable value_gradient(const Variable& dy, const std::vector<Tensor>& indices) {
  Shape shape, places;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    shape = broadcast_shapes(shape, indices[d].shape(), "index_put");
    places.push_back(dy.dim(static_cast<int>(d)));
  }
  const Tensor own = names(shape, dy.device());
  const Tensor winners = index_put(zeros(places, own.options()), indices, own);
  Tensor won = cast(eq(index(winners, indices), own), dy.dtype());
  const Variable chosen = index(dy, indices);
  while (won.ndim() < chosen.ndim()) won = won.unsqueeze(-1);
  return mul(chosen, Variable(won));
}

}  // namespace

Variable index_put(const Variable& x, const std::vector<Tensor>& given, const Variable& values,
                   const IndexPutOptions& options) {
  const std::vector<Tensor> indices = composed::without_masks("index_put", x.tensor(), given);
  return record_twice(
      "index_put", index_put(x.tensor(), indices, values.tensor(), options), {x, values},
      [accumulate = options.accumulate, from = values.shape(),
       indices = saved_list(indices, "index_put")](const Variable& dy,
                                                   const BackwardContext& context) {
        Gradients gradients(2);
        const std::vector<Tensor> at = unpacked(indices);
        if (context.needs(0)) gradients[0] = accumulate ? dy : index_put(dy, at, zeros_of({}, dy));
        if (context.needs(1)) {
          const Variable chosen = accumulate ? index(dy, at) : value_gradient(dy, at);
          gradients[1] = sum_to_shape(chosen, from);
        }
        return gradients;
      });
}

namespace {

// The gradient of an embedding's weight as a variable: its own derivative reads the rows again.
Variable embedding_gradient(const Variable& dy, const Tensor& index, const Shape& weight,
                            std::int64_t padding) {
  const Tensor dweight = Tensor::empty(weight, dy.tensor().options());
  embedding_backward_into(dweight, dy.tensor(), index, {.padding_index = padding});
  return record_twice("embedding_backward", dweight, {dy},
                      [padding, index = SavedTensor(index, "embedding_backward")](
                          const Variable& ddweight, const BackwardContext&) {
                        const Tensor& at = index.unpack();
                        const Tensor padded = eq(at, padding).unsqueeze(-1);
                        return Gradients{masked_fill(embedding(ddweight, at), padded, 0)};
                      });
}

}  // namespace

Variable embedding(const Variable& weight, const Tensor& index, const EmbeddingOptions& options) {
  const Tensor y = embedding(weight.tensor(), index);
  const std::int64_t padding = options.padding_index;
  TESSERA_CHECK(-1 <= padding && padding < weight.dim(0), "embedding",
                "padding_index {} is outside [0, {}), the entries of the weight; -1 means none",
                padding, weight.dim(0));
  return record_twice("embedding", y, {weight},
                      [padding, from = weight.shape(), index = SavedTensor(index, "embedding")](
                          const Variable& dy, const BackwardContext& context) {
                        const Tensor& at = index.unpack();
                        // The kernel sums 16-bit values in f32, so it can store either.
                        std::optional<GradientSlot> slot = context.slot(0, dy.dtype());
                        if (!slot && dtype_size(dy.dtype()) == 2)
                          slot = context.slot(0, DType::kF32);
                        if (slot) {
                          embedding_backward_into(slot->tensor, dy.tensor(), at,
                                                  {.beta = slot->beta, .padding_index = padding});
                          return Gradients(1);
                        }
                        return Gradients{embedding_gradient(dy, at, from, padding)};
                      });
}

}  // namespace tessera
