#pragma once

/// Elements selected by masks, and the positions of elements.
///
/// A mask is a bool tensor; masked_fill also takes u8. Where an operation selects elements, their
/// number depends on values: the host waits for the device to count them. On the null device, whose
/// tensors have no values, those operations throw StateError; nonzero_static, with a size that the
/// caller gives, works there, never waits, and can be part of a CUDA graph. index() and index_put()
/// of index.h take masks too. All dtypes.

#include <cstdint>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// The positions of the elements that are not 0 (NaN is not) in row-major order: i64 [count, dims].
Tensor nonzero(const Tensor& x);
/// The same as one tensor [count] for each dim, as index() takes them; a 0-d x counts as [1].
std::vector<Tensor> nonzero_as_tuple(const Tensor& x);
/// nonzero with `size` rows: positions beyond them are left out, and rows that are left over hold
/// fill_value.
Tensor nonzero_static(const Tensor& x, std::int64_t size, std::int64_t fill_value = -1);

/// The elements of x where the mask is set, in row-major order, [count]. x and mask broadcast to
/// each other.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// x, with the elements of `source`, in row-major order, in the places where the mask is set. x and
/// mask broadcast to each other; source has x's dtype and at least as many elements as are set, else
/// InvalidArgument, on a GPU at the next host wait. masked_scatter_ writes to x itself; its mask
/// broadcasts to x's shape.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
void masked_scatter_(const Tensor& x, const Tensor& mask, const Tensor& source);

/// `value` where the mask is set, x elsewhere. x and mask broadcast to each other; masked_fill_
/// writes to x itself, and its mask broadcasts to x's shape. For integer tensors `value` must be an
/// integer. A value that is a tensor has no dims and is converted to x's dtype.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
void masked_fill_(const Tensor& x, const Tensor& mask, double value);
void masked_fill_(const Tensor& x, const Tensor& mask, const Tensor& value);

}  // namespace tessera
