#pragma once

/// The views of tensor.h as functions, so that code for tensors and for variables reads the same:
/// `transpose(x, 0, 1)` and `x.transpose(0, 1)` are one. reshape(), flatten() and contiguous(), which
/// may copy, are in elementwise.h.

#include <cstdint>
#include <initializer_list>
#include <span>

#include "tessera/tensor/tensor.h"

namespace tessera {

inline Tensor view(const Tensor& x, const Shape& shape) { return x.view(shape); }
inline Tensor unflatten(const Tensor& x, int dim, const Shape& extents) {
  return x.unflatten(dim, extents);
}
inline Tensor transpose(const Tensor& x, int dim0, int dim1) { return x.transpose(dim0, dim1); }
inline Tensor permute(const Tensor& x, std::span<const int> dims) { return x.permute(dims); }
inline Tensor permute(const Tensor& x, std::initializer_list<int> dims) { return x.permute(dims); }
inline Tensor movedim(const Tensor& x, int from, int to) { return x.movedim(from, to); }
/// Dim from[i] becomes dim to[i]; the other dims keep their order. Throws InvalidArgument for lists
/// of different lengths and for a dim that is listed twice.
Tensor movedim(const Tensor& x, const DimList& from, const DimList& to);
inline Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end,
                    std::int64_t step = 1) {
  return x.slice(dim, start, end, step);
}
inline Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  return x.narrow(dim, start, length);
}
inline Tensor select(const Tensor& x, int dim, std::int64_t index) { return x.select(dim, index); }
inline Tensor expand(const Tensor& x, const Shape& shape) { return x.expand(shape); }
inline Tensor squeeze(const Tensor& x) { return x.squeeze(); }
inline Tensor squeeze(const Tensor& x, int dim) { return x.squeeze(dim); }
inline Tensor squeeze(const Tensor& x, const DimList& dims) { return x.squeeze(dims); }
inline Tensor unsqueeze(const Tensor& x, int dim) { return x.unsqueeze(dim); }
inline Tensor diagonal(const Tensor& x, std::int64_t offset = 0, int dim0 = 0, int dim1 = 1) {
  return x.diagonal(offset, dim0, dim1);
}
/// unfold(x, options) of image.h is another operation: the windows of a convolution as columns.
Tensor unfold(const Tensor& x, int dim, std::int64_t size, std::int64_t step);

// Other names, which NumPy and PyTorch have too.

inline Tensor swapaxes(const Tensor& x, int dim0, int dim1) { return x.transpose(dim0, dim1); }
inline Tensor swapdims(const Tensor& x, int dim0, int dim1) { return x.transpose(dim0, dim1); }
inline Tensor broadcast_to(const Tensor& x, const Shape& shape) { return x.expand(shape); }
/// In the shape of `other`.
inline Tensor expand_as(const Tensor& x, const Tensor& other) { return x.expand(other.shape()); }
inline Tensor view_as(const Tensor& x, const Tensor& other) { return x.view(other.shape()); }

}  // namespace tessera
