#pragma once

/// Elements selected by indices and by masks.
///
/// Indices are i64 or i32 tensors and count from 0; negative indices are errors. An index outside
/// the dim is an InvalidArgument with the index, its position (row-major; repeated indices count
/// once) and the extent. It is thrown at once on an inline stream, by the next synchronize() on a
/// queued one. If several elements go to one destination, they are processed in the order of the
/// indices (row-major): the last one assigned stays, and sums are added in that order, in f32 for
/// 16-bit dtypes, rounded once. All dtypes are legal unless a comment says otherwise. Functions
/// whose names end in `_` reject a tensor with overlapping elements (from expand).

#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// y[i][j][k] = x[i][index[i][j][k]][k] for dim 1: y has index's shape. index has as many dims as
/// x, and outside `dim` its extents are at most those of x.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// gather after x and index are broadcast to each other outside `dim`.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim);

/// A copy of x in which y[i][index[i][j][k]][k] = src[i][j][k], for dim 1. src has x's dtype and at
/// least index's extents. scatter_ and scatter_add_ write to x itself, which must not share memory
/// with src.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
void scatter_(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
/// The same with += instead of =. Not for bool.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
void scatter_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& src);

/// The slices of `dim` that index [n] selects, in its order.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// x[indices[0], indices[1], ...]: indices of the leading dims, with shapes that broadcast. The
/// result has their common shape, followed by the remaining dims of x.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);

struct IndexPutOptions {
  bool accumulate = false;  ///< add to the present values; not for bool
};
/// A copy of x in which x[indices[0], indices[1], ...] = values. `values` broadcasts to the shape
/// of index()'s result.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 const IndexPutOptions& options = {});

/// `value` where mask (bool or u8, broadcast to x's shape) is set, x elsewhere. masked_fill_ writes
/// to x itself. For integer tensors `value` must be an integer.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
void masked_fill_(const Tensor& x, const Tensor& mask, double value);

/// [...] -> [..., classes]: 1 at the index, 0 elsewhere.
Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype = DType::kI64);

/// Rows of weight [entries, features]: index [...] -> [..., features].
Tensor embedding(const Tensor& weight, const Tensor& index);

struct EmbeddingBackwardOptions {
  double beta = 0;                  ///< 0: dweight is overwritten; 1: added to
  std::int64_t padding_index = -1;  ///< this row gets no gradient; -1: none
};
/// dweight[i] = beta * dweight[i] + the sum of the rows of dy [..., features] whose entry in index
/// [...] is i, added in order. Floating only; dy may have another dtype.
void embedding_backward_into(const Tensor& dweight, const Tensor& dy, const Tensor& index,
                             const EmbeddingBackwardOptions& options = {});

}  // namespace tessera
