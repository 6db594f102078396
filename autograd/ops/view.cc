#include "tessera/autograd/ops/view.h"

#include <array>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/composed/view.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

// Records a view that shows the same elements in the same order: its derivative is a reshape.
Variable reshaped(const char* name, const Variable& x, Tensor y) {
  return record_twice(name, std::move(y), {x},
                      [from = x.shape()](const Variable& dy, const BackwardContext&) {
                        return Gradients{reshape(dy, from)};
                      });
}

// Where a slice lies in its tensor.
struct Range {
  int dim;
  std::int64_t start;
  std::int64_t end;
  std::int64_t step;
};

// Zeros of `shape` with x at `range`: the derivative of slice, whose derivative slices again.
Variable place(const Variable& x, const Shape& shape, const Range& range) {
  const Tensor out = zeros(shape, x.tensor().options());
  copy_(out.slice(range.dim, range.start, range.end, range.step), x.tensor());
  return record_twice("place", out, {x}, [range](const Variable& dy, const BackwardContext&) {
    return Gradients{slice(dy, range.dim, range.start, range.end, range.step)};
  });
}

// Zeros of `shape` with x on a diagonal: the derivative of diagonal.
struct Diagonal {
  std::int64_t offset;
  int dim0;
  int dim1;
};
Variable place(const Variable& x, const Shape& shape, const Diagonal& at) {
  const Tensor out = zeros(shape, x.tensor().options());
  copy_(out.diagonal(at.offset, at.dim0, at.dim1), x.tensor());
  return record_twice("place", out, {x}, [at](const Variable& dy, const BackwardContext&) {
    return Gradients{diagonal(dy, at.offset, at.dim0, at.dim1)};
  });
}

std::int64_t from_front(std::int64_t index, std::int64_t extent) {
  return index < 0 ? index + extent : index;
}

}  // namespace

Variable view(const Variable& x, const Shape& shape) {
  return reshaped("view", x, x.tensor().view(shape));
}

Variable reshape(const Variable& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return reshaped("reshape", x, reshape(x.tensor(), shape));
}

Variable flatten(const Variable& x, int first, int last) {
  return reshaped("flatten", x, flatten(x.tensor(), first, last));
}

Variable unflatten(const Variable& x, int dim, const Shape& extents) {
  return reshaped("unflatten", x, x.tensor().unflatten(dim, extents));
}

Variable squeeze(const Variable& x) { return reshaped("squeeze", x, x.tensor().squeeze()); }

Variable squeeze(const Variable& x, int dim) {
  return reshaped("squeeze", x, x.tensor().squeeze(dim));
}

Variable squeeze(const Variable& x, const DimList& dims) {
  return reshaped("squeeze", x, x.tensor().squeeze(dims));
}

Variable unsqueeze(const Variable& x, int dim) {
  return reshaped("unsqueeze", x, x.tensor().unsqueeze(dim));
}

Variable transpose(const Variable& x, int dim0, int dim1) {
  return record_twice("transpose", x.tensor().transpose(dim0, dim1), {x},
                      [dim0, dim1](const Variable& dy, const BackwardContext&) {
                        return Gradients{transpose(dy, dim0, dim1)};
                      });
}

Variable permute(const Variable& x, std::span<const int> dims) {
  Tensor y = x.tensor().permute(dims);
  std::array<int, kMaxDims> back{};
  for (int d = 0; d < x.ndim(); ++d) {
    const int from = dims[static_cast<std::size_t>(d)];
    back[static_cast<std::size_t>(from < 0 ? from + x.ndim() : from)] = d;
  }
  return record_twice("permute", std::move(y), {x},
                      [back, n = dims.size()](const Variable& dy, const BackwardContext&) {
                        return Gradients{permute(dy, std::span(back.data(), n))};
                      });
}

Variable movedim(const Variable& x, int from, int to) {
  return record_twice("movedim", x.tensor().movedim(from, to), {x},
                      [from, to](const Variable& dy, const BackwardContext&) {
                        return Gradients{movedim(dy, to, from)};
                      });
}

Variable movedim(const Variable& x, const DimList& from, const DimList& to) {
  const std::vector<int> order = composed::moved_dims(x.ndim(), from, to);
  return permute(x, std::span(order));
}

Variable diagonal(const Variable& x, std::int64_t offset, int dim0, int dim1) {
  return record_twice(
      "diagonal", x.tensor().diagonal(offset, dim0, dim1), {x},
      [from = x.shape(), at = Diagonal{offset, dim0, dim1}](
          const Variable& dy, const BackwardContext&) { return Gradients{place(dy, from, at)}; });
}

// Windows may share elements, so their gradients are added up by position.
Variable unfold(const Variable& x, int dim, std::int64_t size, std::int64_t step) {
  Tensor y = x.tensor().unfold(dim, size, step);
  if (x.ndim() == 0) return slice(unsqueeze(x, 0), 0, 0, size);
  const int d = normalize_dim(dim, x.ndim(), "unfold");
  return record_twice(
      "unfold", y, {x},
      [d, size, step, from = x.shape()](const Variable& dy, const BackwardContext&) {
        const Tensor positions =
            arange(from[d], {.dtype = DType::kI64, .device = dy.device()}).unfold(0, size, step);
        const Variable rows = flatten(movedim(dy, -1, d + 1), d, d + 1);
        const Variable none(zeros(from, dy.tensor().options()));
        return Gradients{index_add(none, d, reshape(positions, {-1}), rows)};
      });
}

Variable slice(const Variable& x, int dim, std::int64_t start, std::int64_t end,
               std::int64_t step) {
  Tensor y = x.tensor().slice(dim, start, end, step);
  const Range range = {dim, from_front(start, x.dim(dim)), from_front(end, x.dim(dim)), step};
  return record_twice("slice", std::move(y), {x},
                      [from = x.shape(), range](const Variable& dy, const BackwardContext&) {
                        return Gradients{place(dy, from, range)};
                      });
}

Variable narrow(const Variable& x, int dim, std::int64_t start, std::int64_t length) {
  Tensor y = x.tensor().narrow(dim, start, length);
  return record_twice("narrow", std::move(y), {x},
                      [from = x.shape(), range = Range{dim, start, start + length, 1}](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{place(dy, from, range)};
                      });
}

Variable select(const Variable& x, int dim, std::int64_t index) {
  Tensor y = x.tensor().select(dim, index);
  const int d = dim < 0 ? dim + x.ndim() : dim;
  const std::int64_t at = from_front(index, x.dim(d));
  return record_twice("select", std::move(y), {x},
                      [from = x.shape(), range = Range{d, at, at + 1, 1}](const Variable& dy,
                                                                          const BackwardContext&) {
                        return Gradients{place(unsqueeze(dy, range.dim), from, range)};
                      });
}

Variable expand(const Variable& x, const Shape& shape) {
  return record_twice("expand", x.tensor().expand(shape), {x},
                      [from = x.shape()](const Variable& dy, const BackwardContext&) {
                        return Gradients{sum_to_shape(dy, from)};
                      });
}

Variable contiguous(const Variable& x) {
  if (x.tensor().is_contiguous()) return x;
  return record_twice("contiguous", contiguous(x.tensor()), {x},
                      [](const Variable& dy, const BackwardContext&) { return Gradients{dy}; });
}

// Members of Variable: inside the class their names hide the functions.
Variable Variable::view(const Shape& shape) const { return tessera::view(*this, shape); }
Variable Variable::unflatten(int dim, const Shape& extents) const {
  return tessera::unflatten(*this, dim, extents);
}
Variable Variable::transpose(int dim0, int dim1) const {
  return tessera::transpose(*this, dim0, dim1);
}
Variable Variable::permute(std::initializer_list<int> dims) const {
  return tessera::permute(*this, dims);
}
Variable Variable::permute(std::span<const int> dims) const {
  return tessera::permute(*this, dims);
}
Variable Variable::movedim(int from, int to) const { return tessera::movedim(*this, from, to); }
Variable Variable::slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step) const {
  return tessera::slice(*this, dim, start, end, step);
}
Variable Variable::narrow(int dim, std::int64_t start, std::int64_t length) const {
  return tessera::narrow(*this, dim, start, length);
}
Variable Variable::select(int dim, std::int64_t index) const {
  return tessera::select(*this, dim, index);
}
Variable Variable::expand(const Shape& shape) const { return tessera::expand(*this, shape); }
Variable Variable::squeeze() const { return tessera::squeeze(*this); }
Variable Variable::squeeze(int dim) const { return tessera::squeeze(*this, dim); }
Variable Variable::squeeze(const DimList& dims) const { return tessera::squeeze(*this, dims); }
Variable Variable::unsqueeze(int dim) const { return tessera::unsqueeze(*this, dim); }
Variable Variable::diagonal(std::int64_t offset, int dim0, int dim1) const {
  return tessera::diagonal(*this, offset, dim0, dim1);
}
Variable Variable::unfold(int dim, std::int64_t size, std::int64_t step) const {
  return tessera::unfold(*this, dim, size, step);
}

}  // namespace tessera
