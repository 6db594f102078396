#pragma once

/// Elements selected by indices. For masks see mask.h.
///
/// Indices are i64 or i32 tensors and count from 0. Negative indices are errors, except in
/// take_along_dim, take, index, index_put and index_fill: there they count from the back. An index
/// outside the dim is an InvalidArgument with the index, its position (row-major; repeated indices count
/// once) and the extent. It is thrown at once on an inline stream, by the next synchronize() on a
/// queued one. If several elements go to one destination, they are processed in the order of the
/// indices (row-major): the last one assigned stays, and sums are added in that order, in f32 for
/// 16-bit dtypes, rounded once. All dtypes are legal unless a comment says otherwise. Functions
/// whose names end in `_` reject a tensor with overlapping elements (from expand). gather, the
/// scatters, index_select, index_add, index_copy and index_fill take a 0-d tensor or index as one
/// element along dim 0.

#include <cstdint>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// y[i][j][k] = x[i][index[i][j][k]][k] for dim 1: y has index's shape. index has as many dims as
/// x, and outside `dim` its extents are at most those of x.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// gather after x and index are broadcast to each other outside `dim`.
Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim);
/// The elements of x in row-major order at `index`, in index's shape.
Tensor take(const Tensor& x, const Tensor& index);

/// A copy of x in which y[i][index[i][j][k]][k] = src[i][j][k], for dim 1. src has x's dtype and at
/// least index's extents. scatter_ and scatter_add_ write to x itself, which must not share memory
/// with src.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
void scatter_(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
/// The same with one number as the source; whole for integer tensors.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, double value);
void scatter_(const Tensor& x, int dim, const Tensor& index, double value);
/// The same with += instead of =. Not for bool.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
void scatter_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& src);

/// How scatter_reduce combines the elements that go to one place.
enum class ScatterReduce : std::uint8_t {
  kSum,
  kProd,
  kMean,  ///< for integers rounded down
  kAmax,  ///< NaN if there is a NaN
  kAmin,  ///< the same
};
struct ScatterReduceOptions {
  ScatterReduce reduce = ScatterReduce::kSum;
  bool include_self = true;  ///< the present value is one of the elements that are combined
};
/// A copy of x in which each place that index names has the reduction of the elements of src that go
/// there. Indices and shapes as for scatter. Not for bool; 16-bit dtypes are computed in f32 and
/// rounded once, integers wrap around.
Tensor scatter_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                      const ScatterReduceOptions& options);
void scatter_reduce_(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                     const ScatterReduceOptions& options);

/// The slices of `dim` that index [n] selects, in its order; of a 0-d tensor one, 0-d.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// x[indices[0], indices[1], ...]: indices of the leading dims, with shapes that broadcast. The
/// result has their common shape, followed by the remaining dims of x. A bool mask of k dims stands
/// for k indices: the positions of its elements that are set, whose number the host waits for (see
/// mask.h); its extents are those of the dims of x that it stands for.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);

/// Slices of `dim` are the target: index [n], or 0-d for one slice, and src has x's shape with n in
/// `dim`. A copy of x with alpha * src added, or with src in those places, or with one number. For
/// integer tensors alpha and value are whole. Functions that end in `_` write to x itself.
struct IndexAddOptions {
  double alpha = 1;  ///< factor of src
};
Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                 const IndexAddOptions& options = {});
void index_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                const IndexAddOptions& options = {});
Tensor index_copy(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
void index_copy_(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
Tensor index_fill(const Tensor& x, int dim, const Tensor& index, double value);
void index_fill_(const Tensor& x, int dim, const Tensor& index, double value);
/// The value is 0-d and converted to x's dtype.
Tensor index_fill(const Tensor& x, int dim, const Tensor& index, const Tensor& value);

struct IndexPutOptions {
  bool accumulate = false;  ///< add to the present values; not for bool
};
/// A copy of x in which x[indices[0], indices[1], ...] = values. `values` broadcasts to the shape
/// of index()'s result.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 const IndexPutOptions& options = {});
/// The same in x itself.
void index_put_(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                const IndexPutOptions& options = {});

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
