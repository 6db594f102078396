/// Views: new strides over the same storage and version family.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "tessera/tensor/check.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/tensor_impl.h"

namespace tessera {
namespace {

/// Strides by which `target` walks the same elements in the same order, if they exist.
std::optional<Shape> view_strides(const Shape& shape, const Shape& strides, const Shape& target) {
  if (shape.numel() == 0) return contiguous_strides(target);
  Shape out = Shape::filled(target.ndim(), 1);
  int t = target.ndim() - 1;
  // From the back: dims that are contiguous with each other are split again.
  for (int d = shape.ndim() - 1; d >= 0;) {
    std::int64_t piece = shape[d], step = strides[d];
    for (--d; d >= 0 && (shape[d] == 1 || strides[d] == step * piece || piece == 1); --d) {
      if (piece == 1) step = strides[d];
      piece *= shape[d];
    }
    std::int64_t filled = 1;
    for (; t >= 0 && (filled < piece || target[t] == 1); --t) {
      out[t] = step * filled;
      filled *= target[t];
    }
    if (filled != piece) return std::nullopt;
  }
  return out;
}

// Of views that keep or swap dims: a 0-d tensor has dim 0 too, as in PyTorch.
int along_dim(int dim, int ndim, const char* where) {
  return normalize_dim(dim, ndim == 0 ? 1 : ndim, where);
}

}  // namespace

Tensor Tensor::restrided(const Shape& shape, const Shape& strides, std::int64_t offset) const {
  const Impl& self = impl();
  return Tensor(std::make_shared<Impl>(self.root ? self.root : impl_, shape, strides, offset));
}

std::optional<Tensor> Tensor::try_view(const Shape& new_shape) const {
  const Shape target = resolve_view_shape(new_shape, shape(), "view");
  const std::optional<Shape> target_strides = view_strides(shape(), strides(), target);
  if (!target_strides) return std::nullopt;
  return restrided(target, *target_strides, offset());
}

Tensor Tensor::view(const Shape& new_shape) const {
  std::optional<Tensor> out = try_view(new_shape);
  TESSERA_CHECK(out.has_value(), "view",
                "shape {} with strides {} cannot be seen as {} without a copy; use reshape",
                shape().str(), strides().str(), new_shape.str());
  return *std::move(out);
}

Tensor Tensor::permute(std::span<const int> dims) const {
  TESSERA_CHECK(static_cast<int>(dims.size()) == ndim(), "permute",
                "{} dims given for shape {}; name each of its {} dims once", dims.size(),
                shape().str(), ndim());
  Shape new_shape = shape(), new_strides = strides();
  std::array<bool, kMaxDims> seen{};
  for (int d = 0; d < ndim(); ++d) {
    const int from = normalize_dim(dims[static_cast<std::size_t>(d)], ndim(), "permute");
    bool& taken = seen[static_cast<std::size_t>(from)];
    TESSERA_CHECK(!taken, "permute", "dim {} is listed twice; name each dim once", from);
    taken = true;
    new_shape[d] = shape()[from];
    new_strides[d] = strides()[from];
  }
  return restrided(new_shape, new_strides, offset());
}

Tensor Tensor::movedim(int from, int to) const {
  const int f = along_dim(from, ndim(), "movedim"), t = along_dim(to, ndim(), "movedim");
  if (ndim() == 0) return *this;
  return restrided(shape().without(f).inserted(t, shape()[f]),
                   strides().without(f).inserted(t, strides()[f]), offset());
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  const int a = along_dim(dim0, ndim(), "transpose");
  const int b = along_dim(dim1, ndim(), "transpose");
  if (ndim() == 0) return *this;
  return restrided(shape().with(a, shape()[b]).with(b, shape()[a]),
                   strides().with(a, strides()[b]).with(b, strides()[a]), offset());
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step) const {
  const int d = normalize_dim(dim, ndim(), "slice");
  const std::int64_t extent = shape()[d];
  const std::int64_t first = start < 0 ? start + extent : start,
                     last = end < 0 ? end + extent : end;
  TESSERA_CHECK(0 <= first && first <= last && last <= extent, "slice",
                "range [{}, {}) is not inside dim {} of shape {}; give 0 <= start <= end <= {}, or "
                "count from the back with negative numbers",
                start, end, d, shape().str(), extent);
  TESSERA_CHECK(step >= 1, "slice", "the step is {}; it must be at least 1", step);
  // An empty slice at the very end keeps the offset inside the storage.
  const std::int64_t skipped = first == last ? 0 : first * strides()[d];
  return restrided(shape().with(d, (last - first + step - 1) / step),
                   strides().with(d, strides()[d] * step), offset() + skipped);
}

Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  TESSERA_CHECK(start >= 0 && length >= 0, "narrow", "start {} and length {} must not be negative",
                start, length);
  return slice(dim, start, start + length);
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const int d = normalize_dim(dim, ndim(), "select");
  const std::int64_t extent = shape()[d], at = index < 0 ? index + extent : index;
  TESSERA_CHECK(0 <= at && at < extent, "select",
                "index {} is not inside dim {} of shape {}; give {} <= index < {}", index, d,
                shape().str(), -extent, extent);
  const std::int64_t skipped = numel() == 0 ? 0 : at * strides()[d];
  return restrided(shape().without(d), strides().without(d), offset() + skipped);
}

Tensor Tensor::expand(const Shape& new_shape) const {
  const int lead = new_shape.ndim() - ndim();
  TESSERA_CHECK(lead >= 0, "expand", "shape {} has fewer dims than {}; expand cannot remove dims",
                new_shape.str(), shape().str());
  Shape target = new_shape, new_strides = Shape::filled(new_shape.ndim(), 0);
  for (int dim = 0; dim < new_shape.ndim(); ++dim) {
    const std::int64_t from = dim < lead ? 1 : shape()[dim - lead];
    if (dim >= lead && target[dim] == -1) target[dim] = from;
    TESSERA_CHECK(target[dim] == from || (from == 1 && target[dim] >= 0), "expand",
                  "shape {} does not expand to {}: dim {} is {}, and only extents of 1 repeat",
                  shape().str(), new_shape.str(), dim, from);
    if (dim >= lead && target[dim] == from) new_strides[dim] = strides()[dim - lead];
  }
  return restrided(target, new_strides, offset());
}

Tensor Tensor::squeeze(int dim) const { return squeeze(DimList{dim}); }

Tensor Tensor::squeeze(const DimList& dims) const {
  const DimMask listed = dim_mask(dims, std::max(ndim(), 1), "squeeze");
  Shape new_shape, new_strides;
  for (int d = 0; d < ndim(); ++d) {
    if (listed[static_cast<std::size_t>(d)] && shape()[d] == 1) continue;
    new_shape.push_back(shape()[d]);
    new_strides.push_back(strides()[d]);
  }
  return restrided(new_shape, new_strides, offset());
}

Tensor Tensor::squeeze() const {
  std::array<int, kMaxDims> all{};
  std::iota(all.begin(), all.end(), 0);
  return squeeze(DimList(std::span(all.data(), static_cast<std::size_t>(ndim()))));
}

Tensor Tensor::diagonal(std::int64_t skipped, int dim0, int dim1) const {
  const int row = normalize_dim(dim0, ndim(), "diagonal"),
            column = normalize_dim(dim1, ndim(), "diagonal");
  TESSERA_CHECK(row != column, "diagonal", "both dims are {}; name two different ones", row);
  const std::int64_t rows = shape()[row], columns = shape()[column];
  const std::int64_t length = skipped >= 0 ? std::min(rows, columns - std::min(skipped, columns))
                                           : std::min(rows - std::min(-skipped, rows), columns);
  const int first = std::min(row, column), second = std::max(row, column);
  Shape new_shape = shape().without(second).without(first),
        new_strides = strides().without(second).without(first);
  new_shape.push_back(length);
  new_strides.push_back(strides()[row] + strides()[column]);
  // An empty diagonal keeps the offset inside the storage.
  const std::int64_t begin =
      new_shape.numel() == 0 ? 0 : std::abs(skipped) * strides()[skipped >= 0 ? column : row];
  return restrided(new_shape, new_strides, offset() + begin);
}

Tensor Tensor::unfold(int dim, std::int64_t size, std::int64_t step) const {
  const int d = normalize_dim(dim, std::max(ndim(), 1), "unfold");
  const std::int64_t extent = ndim() == 0 ? 1 : shape()[d];
  TESSERA_CHECK(0 <= size && size <= extent, "unfold",
                "windows of {} elements do not fit into dim {} of shape {}; give 0 <= size <= {}",
                size, d, shape().str(), extent);
  TESSERA_CHECK(step >= 1, "unfold", "the step is {}; it must be at least 1", step);
  if (ndim() == 0) return unsqueeze(0).slice(0, 0, size);
  Shape new_shape = shape().with(d, (extent - size) / step + 1),
        new_strides = strides().with(d, step * strides()[d]);
  new_shape.push_back(size);
  new_strides.push_back(strides()[d]);
  return restrided(new_shape, new_strides, offset());
}

Tensor Tensor::unflatten(int dim, const Shape& extents) const {
  const int d = normalize_dim(dim, ndim(), "unflatten");
  const Shape inner = resolve_view_shape(extents, {shape()[d]}, "unflatten");
  Shape target;
  for (int i = 0; i < d; ++i) target.push_back(shape()[i]);
  for (std::int64_t extent : inner) target.push_back(extent);
  for (int i = d + 1; i < ndim(); ++i) target.push_back(shape()[i]);
  return view(target);
}

Tensor Tensor::unsqueeze(int dim) const {
  const int d = normalize_dim(dim, ndim() + 1, "unsqueeze");
  const std::int64_t stride = d < ndim() ? strides()[d] * shape()[d] : 1;
  return restrided(shape().inserted(d, 1), strides().inserted(d, stride), offset());
}

Tensor Tensor::detached_version() const {
  const Impl& self = impl();
  return Tensor(
      std::make_shared<Impl>(self.storage(), self.shape, self.strides, self.offset, self.dtype));
}

}  // namespace tessera
