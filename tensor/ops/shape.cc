#include "tessera/tensor/ops/shape.h"

#include <algorithm>
#include <optional>

#include "tessera/tensor/kernels/cat.h"
#include "tessera/tensor/kernels/fill.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

void check_list(const char* where, const std::vector<Tensor>& tensors) {
  TESSERA_CHECK(!tensors.empty(), where, "the list of tensors is empty; give at least one");
  for (const Tensor& x : tensors) {
    ops::check_defined(where, "a tensor of the list", x);
    ops::check_same_dtype(where, tensors.front(), x);
    ops::check_same_device(where, tensors.front(), x);
  }
}

// Dims [begin, end) as one: its extent, and its stride if it has more than one element. Nothing if its elements are not the
// same distance apart.
struct OneDim {
  std::int64_t extent = 1, stride = 0;
};
std::optional<OneDim> as_one_dim(const Tensor& x, int begin, int end) {
  Shape shape, strides;
  for (int d = begin; d < end; ++d) {
    shape.push_back(x.dim(d));
    strides.push_back(x.strides()[d]);
  }
  merge_dims(shape, {&strides});
  if (shape.ndim() > 1) return std::nullopt;
  return shape.ndim() == 0 ? OneDim{} : OneDim{shape[0], strides[0]};
}

// x, which has elements, as a matrix whose rows are the dims from `dim` on; nothing if that needs a copy.
std::optional<ConstView> as_rows(const Tensor& x, int dim) {
  const auto rows = as_one_dim(x, 0, dim), columns = as_one_dim(x, dim, x.ndim());
  if (!rows || !columns || (columns->extent > 1 && columns->stride != 1)) return std::nullopt;
  ConstView view = read(x);
  view.shape = {rows->extent, columns->extent};
  view.strides = {rows->stride, 1};
  return view;
}

// Joins along a dim after the first by rows, and returns true, if all tensors have them, and no short ones: these are
// copied faster tensor by tensor, in long loops over one column.
bool join_rows(const Tensor& out, const std::vector<Tensor>& tensors, int dim) {
  constexpr std::int64_t kShortRow = 8;
  CatKernel::Args args;
  for (const Tensor& x : tensors) {
    if (x.numel() == 0) continue;
    const std::optional<ConstView> part = as_rows(x, dim);
    if (!part || part->shape[0] == 1 || part->shape[1] < kShortRow) return false;
    args.parts.push_back(*part);
  }
  if (args.parts.empty()) return false;
  const std::int64_t rows = args.parts.front().shape[0], columns = out.numel() / rows;
  args.y = write(out);
  args.y.shape = {rows, columns};
  args.y.strides = {columns, 1};
  launch<CatKernel>(out.device(), args);
  return true;
}

Tensor joined(const char* where, const std::vector<Tensor>& tensors, int dim) {
  Shape shape = tensors.front().shape();
  shape[dim] = 0;
  for (const Tensor& x : tensors) {
    const bool fits = x.ndim() == shape.ndim() && x.shape().with(dim, 0) == shape.with(dim, 0);
    TESSERA_CHECK(fits, where, "shapes {} and {} do not fit; they may differ in dim {} only",
                  tensors.front().shape().str(), x.shape().str(), dim);
    shape[dim] += x.dim(dim);
  }
  const Tensor out = Tensor::empty(shape, tensors.front().options());
  if (join_rows(out, tensors, dim)) return out;
  std::int64_t start = 0;
  for (const Tensor& x : tensors) {
    copy_(out.slice(dim, start, start + x.dim(dim)), x);
    start += x.dim(dim);
  }
  return out;
}

std::vector<Tensor> parts(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
  std::vector<Tensor> out;
  std::int64_t start = 0;
  for (std::int64_t size : sizes) {
    out.push_back(x.slice(dim, start, start + size));
    start += size;
  }
  return out;
}

// Views x as [outer, extent, 1, inner], repeats the third dim, copies, and restores a shape in
// which `dim` holds extent and repetition. `dim` may be x.ndim() - 1 at most; outer and inner hold
// the other dims.
Tensor repeated(const Tensor& x, int dim, std::int64_t extent, std::int64_t count) {
  std::int64_t outer = 1;
  for (int d = 0; d < dim; ++d) outer *= x.dim(d);
  std::int64_t inner = 1;
  for (int d = dim; d < x.ndim(); ++d) inner *= x.dim(d);
  inner = extent == 0 ? 0 : inner / extent;
  const Tensor four = contiguous(x).view({outer, extent, 1, inner});
  return clone(four.expand({outer, extent, count, inner}))
      .view(x.shape().with(dim, x.dim(dim) * count));
}

Tensor triangle(const char* where, const Tensor& x, std::int64_t diagonal, bool upper) {
  ops::check_defined(where, "the tensor", x);
  TESSERA_CHECK(x.ndim() >= 2, where, "needs at least 2 dims, got shape {}; unsqueeze it",
                x.shape().str());
  const Tensor out = Tensor::empty(x.shape(), x.options());
  // Larger diagonals give the same result.
  const std::int64_t inside = std::clamp(diagonal, -x.dim(-2), x.dim(-1));
  launch<TriangleKernel>(x.device(),
                         {.x = read(x), .y = write(out), .diagonal = inside, .upper = upper});
  return out;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  check_list("cat", tensors);
  return joined("cat", tensors, normalize_dim(dim, tensors.front().ndim(), "cat"));
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  check_list("stack", tensors);
  const int d = normalize_dim(dim, tensors.front().ndim() + 1, "stack");
  std::vector<Tensor> raised;
  for (const Tensor& x : tensors) {
    ops::check_same_shape("stack", tensors.front(), x);
    raised.push_back(x.unsqueeze(d));
  }
  return joined("stack", raised, d);
}

std::vector<std::int64_t> split_sizes(std::int64_t extent, std::int64_t size) {
  TESSERA_CHECK(size > 0, "split", "the size of a part is {}; it must be at least 1", size);
  std::vector<std::int64_t> sizes;
  for (std::int64_t start = 0; start < extent; start += size)
    sizes.push_back(std::min(size, extent - start));
  if (extent == 0) sizes.push_back(0);
  return sizes;
}

std::vector<std::int64_t> chunk_sizes(std::int64_t extent, std::int64_t chunks) {
  TESSERA_CHECK(chunks > 0, "chunk", "the number of chunks is {}; it must be at least 1", chunks);
  if (extent == 0) return std::vector<std::int64_t>(static_cast<std::size_t>(chunks), 0);
  return split_sizes(extent, (extent + chunks - 1) / chunks);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
  ops::check_defined("split", "the tensor", x);
  const int d = normalize_dim(dim, x.ndim(), "split");
  std::int64_t total = 0;
  for (std::int64_t size : sizes) {
    TESSERA_CHECK(size >= 0, "split", "the size of a part is {}; it must not be negative", size);
    total += size;
  }
  TESSERA_CHECK(total == x.dim(d), "split",
                "the parts have {} elements together, and dim {} of {} has {}; they must agree",
                total, d, x.shape().str(), x.dim(d));
  return parts(x, sizes, d);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim) {
  ops::check_defined("split", "the tensor", x);
  const int d = normalize_dim(dim, x.ndim(), "split");
  return parts(x, split_sizes(x.dim(d), size), d);
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, int dim) {
  ops::check_defined("chunk", "the tensor", x);
  const int d = normalize_dim(dim, x.ndim(), "chunk");
  return parts(x, chunk_sizes(x.dim(d), chunks), d);
}

std::vector<Tensor> unbind(const Tensor& x, int dim) {
  ops::check_defined("unbind", "the tensor", x);
  const int d = normalize_dim(dim, x.ndim(), "unbind");
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < x.dim(d); ++i) out.push_back(x.select(d, i));
  return out;
}

Tensor pad(const Tensor& x, const std::vector<Padding>& padding, double value) {
  ops::check_defined("pad", "the tensor", x);
  const int lead = x.ndim() - static_cast<int>(padding.size());
  TESSERA_CHECK(lead >= 0, "pad", "{} dims are padded, and shape {} has {}; give one pair a dim",
                padding.size(), x.shape().str(), x.ndim());
  Shape shape = x.shape();
  Tensor from = x;
  for (int d = lead; d < x.ndim(); ++d) {
    const Padding& p = padding[static_cast<std::size_t>(d - lead)];
    shape[d] += p.before + p.after;
    TESSERA_CHECK(shape[d] >= 0, "pad", "{} and {} cut more off dim {} of {} than there is",
                  p.before, p.after, d, x.shape().str());
    const std::int64_t start = std::clamp<std::int64_t>(-p.before, 0, x.dim(d));
    const std::int64_t end = std::max(start, x.dim(d) - std::max<std::int64_t>(0, -p.after));
    from = from.slice(d, start, end);
  }
  if (from.shape() == shape) return clone(from);  // only cut
  const Tensor out = full(shape, value, x.options());
  if (from.numel() == 0) return out;
  Tensor middle = out;
  for (int d = lead; d < x.ndim(); ++d) {
    const std::int64_t start =
        std::max<std::int64_t>(0, padding[static_cast<std::size_t>(d - lead)].before);
    middle = middle.slice(d, start, start + from.dim(d));
  }
  copy_(middle, from);
  return out;
}

Tensor roll(const Tensor& x, std::int64_t shift, int dim) {
  ops::check_defined("roll", "the tensor", x);
  const int d = normalize_dim(dim, x.ndim(), "roll");
  const std::int64_t n = x.dim(d);
  const std::int64_t forward = n == 0 ? 0 : (shift % n + n) % n;
  return joined("roll", {x.slice(d, n - forward, n), x.slice(d, 0, n - forward)}, d);
}

Tensor flip(const Tensor& x, const DimList& dims) {
  ops::check_defined("flip", "the tensor", x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  launch<FlipKernel>(x.device(),
                     {.x = read(x), .y = write(out), .reversed = dim_mask(dims, x.ndim(), "flip")});
  return out;
}

Tensor repeat(const Tensor& x, const Shape& repeats) {
  ops::check_defined("repeat", "the tensor", x);
  TESSERA_CHECK(repeats.ndim() >= x.ndim(), "repeat",
                "{} has fewer entries than {} has dims; give one for each, or use tile",
                repeats.str(), x.shape().str());
  Tensor out = x;
  while (out.ndim() < repeats.ndim()) out = out.unsqueeze(0);
  bool copied = false;
  for (int d = 0; d < repeats.ndim(); ++d) {
    TESSERA_CHECK(repeats[d] >= 0, "repeat", "{} has a negative entry; give counts", repeats.str());
    // All dims from `d` on are one element to be repeated.
    if (repeats[d] == 1) continue;
    out = repeated(out, d, 1, repeats[d]);
    copied = true;
  }
  return copied ? out : clone(out);
}

Tensor tile(const Tensor& x, const Shape& repeats) {
  ops::check_defined("tile", "the tensor", x);
  Shape all = repeats;
  while (all.ndim() < x.ndim()) all = all.inserted(0, 1);
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t count, int dim) {
  ops::check_defined("repeat_interleave", "the tensor", x);
  const int d = normalize_dim(dim, x.ndim(), "repeat_interleave");
  TESSERA_CHECK(count >= 0, "repeat_interleave", "the count is {}; it must not be negative", count);
  return repeated(x, d, x.dim(d), count);
}

Tensor tril(const Tensor& x, std::int64_t diagonal) { return triangle("tril", x, diagonal, false); }

Tensor triu(const Tensor& x, std::int64_t diagonal) { return triangle("triu", x, diagonal, true); }

}  // namespace tessera
