#pragma once

/// The differentiable counterparts of tensor/ops/index.h; indices and masks are plain tensors. All
/// twice, but for one case of scatter_reduce. Gradients of elements that were chosen several times
/// are added in the order of the indices.

#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/index.h"

namespace tessera {

Variable gather(const Variable& x, int dim, const Tensor& index);
Variable take_along_dim(const Variable& x, const Tensor& index, int dim);
Variable take(const Variable& x, const Tensor& index);
/// Of elements that go to one place only the last, which stays, has a gradient.
Variable scatter(const Variable& x, int dim, const Tensor& index, const Variable& src);
Variable scatter(const Variable& x, int dim, const Tensor& index, double value);
Variable scatter_add(const Variable& x, int dim, const Tensor& index, const Variable& src);
/// Equal extremes share the gradient evenly. The second derivative of a product is 0 where several
/// zeros of src go to one place.
Variable scatter_reduce(const Variable& x, int dim, const Tensor& index, const Variable& src,
                        const ScatterReduceOptions& options);
Variable index_add(const Variable& x, int dim, const Tensor& index, const Variable& src,
                   const IndexAddOptions& options = {});
/// As scatter.
Variable index_copy(const Variable& x, int dim, const Tensor& index, const Variable& src);
Variable index_fill(const Variable& x, int dim, const Tensor& index, double value);
/// The value's gradient is the sum over the places that it fills.
Variable index_fill(const Variable& x, int dim, const Tensor& index, const Variable& value);
Variable index_select(const Variable& x, int dim, const Tensor& index);
Variable index(const Variable& x, const std::vector<Tensor>& indices);
/// As scatter; with accumulate as scatter_add.
Variable index_put(const Variable& x, const std::vector<Tensor>& indices, const Variable& values,
                   const IndexPutOptions& options = {});

struct EmbeddingOptions {
  std::int64_t padding_index = -1;  ///< an entry that gets no gradient; -1: none
};
/// The gradient of weight is written into its slot.
Variable embedding(const Variable& weight, const Tensor& index,
                   const EmbeddingOptions& options = {});

}  // namespace tessera
