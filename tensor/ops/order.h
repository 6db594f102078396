#pragma once

/// What depends on the order of elements along one dim: extremes with their positions, sorting.
///
/// Any dtype. NaN counts as the largest number, -0 equals 0. Of equal elements the first comes
/// first, always: so results do not depend on threads, and sorting is stable. `dim` counts from the
/// back when negative; all throw InvalidArgument for a dim that does not exist and for 0-d tensors.
/// Positions are i64 and count from 0.

#include "tessera/tensor/tensor.h"

namespace tessera {

struct ValuesAndIndices {
  Tensor values;   ///< in the dtype of x
  Tensor indices;  ///< their positions along the dim
};

/// Where the largest or smallest element stands. The dim disappears unless keep_dims. Throws
/// InvalidArgument when it is empty.
Tensor argmax(const Tensor& x, int dim = -1, bool keep_dims = false);
Tensor argmin(const Tensor& x, int dim = -1, bool keep_dims = false);
/// The element and its position. For the element alone over several dims see amax.
ValuesAndIndices max(const Tensor& x, int dim, bool keep_dims = false);
ValuesAndIndices min(const Tensor& x, int dim, bool keep_dims = false);
/// Of all elements, 0-d.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

struct SortOptions {
  bool descending = false;
};
/// Sorted along `dim`; stable, also when descending.
ValuesAndIndices sort(const Tensor& x, int dim = -1, const SortOptions& options = {});
/// The positions alone.
Tensor argsort(const Tensor& x, int dim = -1, const SortOptions& options = {});

struct TopkOptions {
  bool largest = true;
};
/// The k largest or smallest along `dim`, the best first. Throws InvalidArgument unless 0 <= k <=
/// the extent.
ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim = -1,
                      const TopkOptions& options = {});

}  // namespace tessera
