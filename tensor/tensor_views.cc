/// Views: new strides over the same storage and version family.

#include "tessera/tensor/check.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/tensor_impl.h"

namespace tessera {
namespace {

/// `shape` with its -1, if there is one, replaced by what `numel` leaves for it.
Shape resolve_view_shape(const Shape& shape, const Shape& from, std::int64_t numel) {
  int open = -1;
  std::int64_t known = 1;
  bool overflow = false;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] == -1) {
      TESSERA_CHECK(open < 0, "view", "shape {} has more than one -1; give all extents but one",
                    shape.str());
      open = dim;
      continue;
    }
    TESSERA_CHECK(shape[dim] >= 0, "view", "shape {} has a negative extent; only -1 is legal",
                  shape.str());
    overflow = overflow || __builtin_mul_overflow(known, shape[dim], &known);
  }
  const bool fits = open < 0 ? known == numel : known != 0 && numel % known == 0;
  TESSERA_CHECK(fits && !overflow, "view",
                "the {} elements of shape {} do not fill shape {}; extents must multiply to {}",
                numel, from.str(), shape.str(), numel);
  return open < 0 ? shape : shape.with(open, numel / known);
}

}  // namespace

Tensor Tensor::restrided(const Shape& shape, const Shape& strides, std::int64_t offset) const {
  const Impl& self = impl();
  return Tensor(std::make_shared<Impl>(self.storage, shape, strides, offset, self.dtype,
                                       self.root ? self.root : impl_));
}

Tensor Tensor::view(const Shape& new_shape) const {
  TESSERA_CHECK(is_contiguous(), "view",
                "shape {} with strides {} is not contiguous; copy it with contiguous() first",
                shape().str(), strides().str());
  const Shape target = resolve_view_shape(new_shape, shape(), numel());
  return restrided(target, contiguous_strides(target), offset());
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  const int a = normalize_dim(dim0, ndim(), "transpose");
  const int b = normalize_dim(dim1, ndim(), "transpose");
  return restrided(shape().with(a, shape()[b]).with(b, shape()[a]),
                   strides().with(a, strides()[b]).with(b, strides()[a]), offset());
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t end) const {
  const int d = normalize_dim(dim, ndim(), "slice");
  TESSERA_CHECK(0 <= start && start <= end && end <= shape()[d], "slice",
                "range [{}, {}) is not inside dim {} of shape {}; give 0 <= start <= end <= {}",
                start, end, d, shape().str(), shape()[d]);
  // An empty slice at the very end keeps the offset inside the storage.
  const std::int64_t skipped = start == end ? 0 : start * strides()[d];
  return restrided(shape().with(d, end - start), strides(), offset() + skipped);
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const int d = normalize_dim(dim, ndim(), "select");
  TESSERA_CHECK(0 <= index && index < shape()[d], "select",
                "index {} is not inside dim {} of shape {}; give 0 <= index < {}", index, d,
                shape().str(), shape()[d]);
  const std::int64_t skipped = numel() == 0 ? 0 : index * strides()[d];
  return restrided(shape().without(d), strides().without(d), offset() + skipped);
}

Tensor Tensor::expand(const Shape& new_shape) const {
  const int lead = new_shape.ndim() - ndim();
  TESSERA_CHECK(lead >= 0, "expand", "shape {} has fewer dims than {}; expand cannot remove dims",
                new_shape.str(), shape().str());
  Shape new_strides = Shape::filled(new_shape.ndim(), 0);
  for (int dim = 0; dim < new_shape.ndim(); ++dim) {
    const std::int64_t from = dim < lead ? 1 : shape()[dim - lead];
    TESSERA_CHECK(new_shape[dim] == from || (from == 1 && new_shape[dim] >= 0), "expand",
                  "shape {} does not expand to {}: dim {} is {}, and only extents of 1 repeat",
                  shape().str(), new_shape.str(), dim, from);
    if (dim >= lead && new_shape[dim] == from) new_strides[dim] = strides()[dim - lead];
  }
  return restrided(new_shape, new_strides, offset());
}

Tensor Tensor::squeeze(int dim) const {
  const int d = normalize_dim(dim, ndim(), "squeeze");
  TESSERA_CHECK(shape()[d] == 1, "squeeze",
                "dim {} of shape {} is {}; only a dim of 1 can be dropped", d, shape().str(),
                shape()[d]);
  return restrided(shape().without(d), strides().without(d), offset());
}

Tensor Tensor::unsqueeze(int dim) const {
  const int d = normalize_dim(dim, ndim() + 1, "unsqueeze");
  const std::int64_t stride = d < ndim() ? strides()[d] * shape()[d] : 1;
  return restrided(shape().inserted(d, 1), strides().inserted(d, stride), offset());
}

Tensor Tensor::detached_version() const {
  const Impl& self = impl();
  return Tensor(std::make_shared<Impl>(self.storage, self.shape, self.strides, self.offset,
                                       self.dtype, nullptr));
}

}  // namespace tessera
