#include "tessera/autograd/ops/view.h"

#include <array>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
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

}  // namespace tessera
