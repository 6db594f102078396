#include "tessera/tensor/shape.h"

#include <fmt/ranges.h>

#include "tessera/tensor/check.h"

namespace tessera {

void Shape::throw_too_many(std::size_t dims) {
  throw_error<InvalidArgument>("shape", "{} dims are more than the {} a tensor may have", dims,
                               kMaxDims);
}

Shape Shape::filled(int ndim, std::int64_t value) {
  TESSERA_CHECK(ndim >= 0 && ndim <= kMaxDims, "shape", "{} dims are outside 0 to {}", ndim,
                kMaxDims);
  Shape out;
  out.ndim_ = ndim;
  std::fill_n(out.dims_.begin(), ndim, value);
  return out;
}

void Shape::push_back(std::int64_t value) {
  TESSERA_CHECK(ndim_ < kMaxDims, "shape", "a dim after {} is more than the {} a tensor may have",
                str(), kMaxDims);
  dims_[static_cast<std::size_t>(ndim_++)] = value;
}

Shape Shape::with(int dim, std::int64_t value) const {
  TESSERA_CHECK(dim >= 0 && dim < ndim_, "shape", "dim {} does not exist in {}", dim, str());
  Shape out = *this;
  out[dim] = value;
  return out;
}

Shape Shape::without(int dim) const {
  TESSERA_CHECK(dim >= 0 && dim < ndim_, "shape", "dim {} does not exist in {}", dim, str());
  Shape out = *this;
  std::copy(begin() + dim + 1, end(), out.dims_.begin() + dim);
  out.dims_[static_cast<std::size_t>(--out.ndim_)] = 0;
  return out;
}

Shape Shape::inserted(int dim, std::int64_t value) const {
  TESSERA_CHECK(dim >= 0 && dim <= ndim_, "shape", "no dim can be put at {} of {}", dim, str());
  Shape out = *this;
  out.push_back(value);
  std::copy_backward(out.dims_.begin() + dim, out.dims_.begin() + ndim_,
                     out.dims_.begin() + ndim_ + 1);
  out[dim] = value;
  return out;
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* where) {
  const Shape& longer = a.ndim() >= b.ndim() ? a : b;
  const Shape& shorter = a.ndim() >= b.ndim() ? b : a;
  const int lead = longer.ndim() - shorter.ndim();
  Shape out = longer;
  for (int dim = lead; dim < longer.ndim(); ++dim) {
    const std::int64_t other = shorter[dim - lead];
    TESSERA_CHECK(out[dim] == other || out[dim] == 1 || other == 1, where,
                  "shapes {} and {} do not broadcast: dim {} counted from the back is {} and {}; "
                  "extents must be equal or 1",
                  a.str(), b.str(), longer.ndim() - dim, a[a.ndim() - (longer.ndim() - dim)],
                  b[b.ndim() - (longer.ndim() - dim)]);
    if (out[dim] == 1) out[dim] = other;
  }
  return out;
}

Shape resolve_view_shape(const Shape& shape, const Shape& from, const char* where) {
  const std::int64_t numel = from.numel();
  int open = -1;
  std::int64_t known = 1;
  bool overflow = false;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] == -1) {
      TESSERA_CHECK(open < 0, where, "shape {} has more than one -1; give all extents but one",
                    shape.str());
      open = dim;
      continue;
    }
    TESSERA_CHECK(shape[dim] >= 0, where, "shape {} has a negative extent; only -1 is legal",
                  shape.str());
    overflow = overflow || __builtin_mul_overflow(known, shape[dim], &known);
  }
  const bool fits = open < 0 ? known == numel : known != 0 && numel % known == 0;
  TESSERA_CHECK(fits && !overflow, where,
                "the {} elements of shape {} do not fill shape {}; extents must multiply to {}",
                numel, from.str(), shape.str(), numel);
  return open < 0 ? shape : shape.with(open, numel / known);
}

int normalize_dim(int dim, int ndim, const char* where) {
  TESSERA_CHECK(ndim > 0, where, "dim {} does not exist in a 0-d tensor; unsqueeze it first", dim);
  TESSERA_CHECK(dim >= -ndim && dim < ndim, where,
                "dim {} does not exist in a tensor of {} dims; give one from {} to {}", dim, ndim,
                -ndim, ndim - 1);
  return dim < 0 ? dim + ndim : dim;
}

}  // namespace tessera
