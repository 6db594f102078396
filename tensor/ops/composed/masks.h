#pragma once

/// What operations with masks share, and the definitions of those in ops/mask.h that are made of
/// others. For the .cc files of tensor/ops and autograd/ops.

#include <vector>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/tensor.h"

namespace tessera::composed {

/// The indices of index(): a bool mask of k dims is replaced by the k positions of its elements
/// that are set. Throws InvalidArgument tagged `where` if its shape is not that of the dims of x
/// that it stands for; StateError on the null device.
std::vector<Tensor> without_masks(const char* where, const Tensor& x,
                                  const std::vector<Tensor>& indices);
/// Checks masked_select; returns the row-major positions of the set elements of the mask, expanded
/// to `shape`.
Tensor selected_places(const Tensor& x, const Tensor& mask, const Shape& shape);
/// For each element of `shape`, in row-major order, the number of set elements of the mask up to and
/// with it. Throws InvalidArgument if the source has fewer elements, on a GPU at the next host wait.
Tensor source_places(const char* where, const Tensor& mask, const Tensor& source,
                     const Shape& shape);
/// Throws InvalidArgument tagged `where` unless the mask is defined, bool, or if `or_u8` u8, and on
/// x's device.
void check_mask(const char* where, const Tensor& x, const Tensor& mask, bool or_u8 = false);
/// Checks the value of masked_fill and index_fill.
void check_fill_value(const char* where, const Tensor& x, const Tensor& value);

template <class V>
V masked_select(const V& x, const Tensor& mask) {
  check_mask("masked_select", plain(x), mask);
  const Shape shape = broadcast_shapes(x.shape(), mask.shape(), "masked_select");
  const Tensor places = selected_places(plain(x), mask, shape);
  return gather(reshape(expanded(x, shape), {shape.numel()}), 0, places);
}

template <class V>
V masked_scatter(const V& x, const Tensor& mask, const V& source) {
  constexpr const char* kWhere = "masked_scatter";
  ops::check_operands(kWhere, plain(x), plain(source));
  check_mask(kWhere, plain(x), mask);
  const Shape shape = broadcast_shapes(x.shape(), mask.shape(), kWhere);
  const Tensor places = source_places(kWhere, mask, plain(source), shape);
  // Elements before the first set one have place 0.
  const V first(zeros({1}, plain(source).options()));
  const V given =
      gather(cat(std::vector<V>{first, reshape(source, {source.numel()})}, 0), 0, places);
  return where(mask, reshape(given, shape), x);
}

template <class V>
V masked_fill(const V& x, const Tensor& mask, const V& value) {
  constexpr const char* kWhere = "masked_fill";
  ops::check_defined(kWhere, "the tensor", plain(x));
  check_mask(kWhere, plain(x), mask, true);
  check_fill_value(kWhere, plain(x), plain(value));
  broadcast_shapes(x.shape(), mask.shape(), kWhere);
  return where(mask, in_dtype(value, x.dtype()), x);
}

}  // namespace tessera::composed
