#pragma once

/// The differentiable counterparts of Tensor's views, and of reshape and flatten. No copy but where
/// reshape needs one. All derivatives are differentiable again.

#include <initializer_list>
#include <span>

#include "tessera/autograd/variable.h"

namespace tessera {

Variable view(const Variable& x, const Shape& shape);
Variable reshape(const Variable& x, const Shape& shape);
Variable flatten(const Variable& x, int first = 0, int last = -1);
Variable unflatten(const Variable& x, int dim, const Shape& extents);
Variable transpose(const Variable& x, int dim0, int dim1);
Variable permute(const Variable& x, std::span<const int> dims);
inline Variable permute(const Variable& x, std::initializer_list<int> dims) {
  return permute(x, std::span(dims.begin(), dims.size()));
}
Variable movedim(const Variable& x, int from, int to);
Variable movedim(const Variable& x, const DimList& from, const DimList& to);
Variable slice(const Variable& x, int dim, std::int64_t start, std::int64_t end,
               std::int64_t step = 1);
Variable narrow(const Variable& x, int dim, std::int64_t start, std::int64_t length);
Variable select(const Variable& x, int dim, std::int64_t index);
Variable expand(const Variable& x, const Shape& shape);
Variable squeeze(const Variable& x);
Variable squeeze(const Variable& x, int dim);
Variable squeeze(const Variable& x, const DimList& dims);
Variable unsqueeze(const Variable& x, int dim);
Variable diagonal(const Variable& x, std::int64_t offset = 0, int dim0 = 0, int dim1 = 1);
Variable unfold(const Variable& x, int dim, std::int64_t size, std::int64_t step);
inline Variable swapaxes(const Variable& x, int dim0, int dim1) { return transpose(x, dim0, dim1); }
inline Variable swapdims(const Variable& x, int dim0, int dim1) { return transpose(x, dim0, dim1); }
inline Variable broadcast_to(const Variable& x, const Shape& shape) { return expand(x, shape); }
inline Variable expand_as(const Variable& x, const Variable& other) {
  return expand(x, other.shape());
}
inline Variable view_as(const Variable& x, const Variable& other) { return view(x, other.shape()); }
/// x itself when contiguous, else a copy.
Variable contiguous(const Variable& x);

}  // namespace tessera
