#pragma once

/// Operations that depend on the order of elements along one dim: extremes with their positions,
/// and sorting.
///
/// All dtypes. NaN counts as the largest number; -0 equals 0. Among equal elements the first one
/// comes first: results do not depend on threads, and sorting is stable. A negative `dim` counts
/// from the back; a 0-d tensor counts as one element along dim 0. All functions throw
/// InvalidArgument for a dim that does not exist. Positions are i64 and count from 0.

#include <optional>

#include "tessera/tensor/tensor.h"

namespace tessera {

struct ValuesAndIndices {
  Tensor values;   ///< in x's dtype
  Tensor indices;  ///< positions along the dim
};

/// The position of the largest or smallest element. The dim is removed unless keep_dims.
/// std::nullopt: among all elements in row-major order, which is what argmax(x) means in PyTorch;
/// here the default is the last dim. Throws InvalidArgument if the dim is empty.
Tensor argmax(const Tensor& x, std::optional<int> dim = -1, bool keep_dims = false);
Tensor argmin(const Tensor& x, std::optional<int> dim = -1, bool keep_dims = false);
/// The element and its position. For the element alone over several dims use amax.
ValuesAndIndices max(const Tensor& x, int dim, bool keep_dims = false);
ValuesAndIndices min(const Tensor& x, int dim, bool keep_dims = false);
/// Over all elements, 0-d.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

struct SortOptions {
  bool descending = false;
};
/// Sorted along `dim`; stable, also in descending order.
ValuesAndIndices sort(const Tensor& x, int dim = -1, const SortOptions& options = {});
/// Only the positions.
Tensor argsort(const Tensor& x, int dim = -1, const SortOptions& options = {});

struct TopkOptions {
  bool largest = true;
};
/// The k largest or smallest elements along `dim`, the best first. Throws InvalidArgument unless 0
/// <= k <= the extent.
ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim = -1,
                      const TopkOptions& options = {});

/// The k-th smallest element along `dim`; k counts from 1. Throws InvalidArgument unless 1 <= k <=
/// the extent.
ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, int dim = -1, bool keep_dims = false);
/// The lower median: of an even number of elements the smaller one in the middle. NaN if there is a
/// NaN; nanmedian leaves NaN out, and is NaN where there is nothing else. Throws InvalidArgument if
/// the dim is empty.
ValuesAndIndices median(const Tensor& x, int dim, bool keep_dims = false);
ValuesAndIndices nanmedian(const Tensor& x, int dim, bool keep_dims = false);
/// Over all elements, 0-d. Throws InvalidArgument for none (PyTorch returns NaN).
Tensor median(const Tensor& x);
Tensor nanmedian(const Tensor& x);
/// The most frequent element, the smallest of several, and the position of its last occurrence.
/// Each NaN differs from every other. Throws InvalidArgument if the dim is empty.
ValuesAndIndices mode(const Tensor& x, int dim = -1, bool keep_dims = false);

}  // namespace tessera
