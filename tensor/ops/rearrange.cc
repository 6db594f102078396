/// Those functions of ops/shape.h that are made of others.

#include <algorithm>
#include <array>

#include "tessera/tensor/kernels/fill.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/composed/shape.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tensor/ops/view.h"

namespace tessera {
namespace {

constexpr const char* kRepeatInterleave = "repeat_interleave";

[[noreturn]] void throw_wrong_size(std::int64_t index, std::int64_t, std::int64_t extent, int) {
  TESSERA_CHECK(index >= 0, kRepeatInterleave, "a count is negative; it must not be");
  throw_error<InvalidArgument>(kRepeatInterleave,
                               "the counts add up to more than output_size, which is {}; give "
                               "their sum",
                               extent - 1);
}

[[noreturn]] void throw_rest(std::int64_t, std::int64_t position, std::int64_t extent, int) {
  throw_error<InvalidArgument>(
      kRepeatInterleave,
      "output_size goes beyond the sum of the {} counts, at entry {} of the result; give the sum",
      extent, position);
}

std::int64_t checked_sum(const Tensor& counts) {
  TESSERA_CHECK_AS(StateError, !counts.device().is_null(), kRepeatInterleave,
                   "the sum of the counts depends on values, and tensors on the null device have "
                   "none; give output_size");
  if (counts.numel() == 0) return 0;
  const std::int64_t least = cast(amin(counts), DType::kI64).item<std::int64_t>();
  TESSERA_CHECK(least >= 0, kRepeatInterleave, "a count is {}; counts must not be negative", least);
  return sum(counts).item<std::int64_t>();
}

void check_padding(const Tensor& x, int d, const Padding& p, PadMode mode) {
  const std::int64_t n = x.dim(d), most = std::max(p.before, p.after);
  const auto wanted = [&](bool fits, const char* rule) {
    TESSERA_CHECK(fits, "pad", "dim {} of {} is padded by {} and {}; {}", d, x.shape().str(),
                  p.before, p.after, rule);
  };
  wanted(p.before + p.after + n >= 0 && p.before >= -n && p.after >= -n,
         "more is cut off than there is");
  switch (mode) {
    case PadMode::kReflect:
      return wanted(most <= 0 || most < n, "reflection needs less than the extent");
    case PadMode::kReplicate:
      return wanted(most <= 0 || n > 0, "there is no element to replicate");
    case PadMode::kCircular:
      return wanted(most <= n + std::min<std::int64_t>({0, p.before, p.after}),
                    "circular padding needs at most the extent");
    case PadMode::kConstant:
      return;
  }
}

// The positive or the negative numbers of a padding, with 0 for the others.
std::vector<Padding> added(std::vector<Padding> padding) {
  for (Padding& p : padding)
    p = {std::max<std::int64_t>(0, p.before), std::max<std::int64_t>(0, p.after)};
  return padding;
}
std::vector<Padding> cut(std::vector<Padding> padding) {
  for (Padding& p : padding)
    p = {std::min<std::int64_t>(0, p.before), std::min<std::int64_t>(0, p.after)};
  return padding;
}

int first_padded(const Tensor& x, const std::vector<Padding>& padding) {
  return x.ndim() - static_cast<int>(padding.size());
}

Tensor without_cut(const Tensor& x, const std::vector<Padding>& padding) {
  Tensor out = x;
  int d = first_padded(x, padding);
  for (const Padding& p : cut(padding)) {
    out = out.narrow(d, -p.before, out.dim(d) + p.before + p.after);
    ++d;
  }
  return out;
}

// The transpose of without_cut.
Tensor with_zeros(const Tensor& x, const std::vector<Padding>& padding) {
  std::vector<Padding> zeros = cut(padding);
  bool is_cut = false;
  for (Padding& p : zeros) {
    is_cut = is_cut || p.before < 0 || p.after < 0;
    p = {-p.before, -p.after};
  }
  return is_cut ? pad(x, zeros, 0) : x;
}

// Entries [at, at + size) of a padded dim are padding; they show entries [from, from + shown).
struct Edge {
  std::int64_t at;
  std::int64_t size;
  std::int64_t from;
  std::int64_t shown;
};

// Both edges of a dim that had n entries.
std::array<Edge, 2> edges(const Padding& p, std::int64_t n, PadMode mode) {
  const std::int64_t end = p.before + n;
  Edge front{.at = 0, .size = p.before, .from = p.before + 1, .shown = p.before},
      back{.at = end, .size = p.after, .from = end - 1 - p.after, .shown = p.after};
  if (mode == PadMode::kCircular) {
    front.from = n;
    back.from = p.before;
  } else if (mode == PadMode::kReplicate) {
    front.from = p.before;
    back.from = end - 1;
    front.shown = back.shown = 1;
  }
  return {front, back};
}

// Copies x once; the edges of each dim are then copied from the result itself.
Tensor with_edges(const Tensor& x, const std::vector<Padding>& padding, PadMode mode) {
  const int lead = first_padded(x, padding);
  const auto of_dim = [&](int d) { return padding[static_cast<std::size_t>(d - lead)]; };
  Shape shape = x.shape();
  for (int d = lead; d < x.ndim(); ++d) shape[d] += of_dim(d).before + of_dim(d).after;
  const Tensor out = Tensor::empty(shape, x.options());
  // From the result to the place of x: each leaves out the padding of one more dim, the last first.
  std::vector<Tensor> steps = {out};
  for (int d = x.ndim() - 1; d >= lead; --d)
    steps.push_back(steps.back().narrow(d, of_dim(d).before, x.dim(d)));
  copy_(steps.back(), x);
  for (int d = lead; d < x.ndim(); ++d) {
    steps.pop_back();
    // Short edges of the last dim have their long runs along other dims.
    const Tensor all = steps.back().movedim(d, 0);
    for (const Edge& edge : edges(of_dim(d), x.dim(d), mode)) {
      if (edge.size == 0) continue;
      const Tensor to = all.narrow(0, edge.at, edge.size),
                   from = all.narrow(0, edge.from, edge.shown).expand(to.shape());
      launch<FlipKernel>(
          x.device(), {.x = read(from), .y = write(to), .reversed = {mode == PadMode::kReflect}});
    }
  }
  return out;
}

// The transpose of with_edges for dim d alone.
Tensor without_edges(const Tensor& dy, int d, const Padding& p, PadMode mode) {
  if (p.before == 0 && p.after == 0) return dy;
  const std::int64_t n = dy.dim(d) - p.before - p.after;
  const Tensor dx = clone(dy.narrow(d, p.before, n)), all = dy.movedim(d, 0), to = dx.movedim(d, 0);
  for (const Edge& edge : edges(p, n, mode)) {
    if (edge.size == 0) continue;
    Tensor from = all.narrow(0, edge.at, edge.size);
    if (mode == PadMode::kReflect) from = flip(from, {0});
    if (mode == PadMode::kReplicate) from = sum(from, {0}, true);
    add_(to.narrow(0, edge.from - p.before, edge.shown), from);
  }
  return dx;
}

}  // namespace

namespace composed {

// Entry j of the result repeats entry i if i counts end at j or before.
Tensor repeated_entries(const Tensor& x, const Tensor& counts, int dim,
                        const RepeatInterleaveOptions& options) {
  ops::check_defined(kRepeatInterleave, "the tensor", x);
  ops::check_defined(kRepeatInterleave, "the counts", counts);
  ops::check_same_device(kRepeatInterleave, x, counts);
  const int d = normalize_dim(dim, x.ndim(), kRepeatInterleave);
  TESSERA_CHECK(counts.dtype() == DType::kI64 || counts.dtype() == DType::kI32, kRepeatInterleave,
                "the counts have dtype {}; they must be i64 or i32", dtype_name(counts.dtype()));
  TESSERA_CHECK(
      counts.ndim() <= 1 && (counts.numel() == 1 || counts.numel() == x.dim(d)), kRepeatInterleave,
      "the counts have shape {}, and dim {} of {} has {} entries; give one count for each",
      counts.shape().str(), d, x.shape().str(), x.dim(d));
  const Tensor each = reshape(counts, {counts.numel()}).expand({x.dim(d)});
  const std::int64_t size = options.output_size ? *options.output_size : checked_sum(each);
  TESSERA_CHECK(size >= 0, kRepeatInterleave, "output_size is {}; it must not be negative", size);
  const Tensor ends = where(lt(each, 0), -1, cumsum(each, 0));
  const TensorOptions whole{.dtype = DType::kI64, .device = x.device()};
  const Tensor ended = zeros({size + 1}, whole);
  ops::put(ended, {.dim = 0, .index = ends}, full({}, 1, whole).expand(ends.shape()),
           {.where = kRepeatInterleave, .mode = ScatterMode::kAdd, .bad_index = throw_wrong_size});
  const Tensor entries = cumsum(ended.slice(0, 0, size), 0);
  // As indices of the counts, they are checked: output_size may be too large.
  const Tensor numbers = arange(x.dim(d), whole);
  return ops::gathered(numbers, {.dim = 0, .index = entries}, throw_rest);
}

// Wrapping around shows what is left after the cut, other modes also what is cut off.
Tensor pad_backward(const Tensor& dy, const std::vector<Padding>& padding, PadMode mode) {
  const bool cut_first = mode == PadMode::kCircular;
  Tensor dx = cut_first ? dy : with_zeros(dy, padding);
  const int lead = first_padded(dy, padding);
  const std::vector<Padding> edges = added(padding);
  for (int d = dy.ndim() - 1; d >= lead; --d)
    dx = without_edges(dx, d, edges[static_cast<std::size_t>(d - lead)], mode);
  return cut_first ? with_zeros(dx, padding) : dx;
}

}  // namespace composed

Tensor pad(const Tensor& x, const std::vector<Padding>& padding, PadMode mode) {
  if (mode == PadMode::kConstant) return pad(x, padding, 0);
  ops::check_defined("pad", "the tensor", x);
  const int lead = x.ndim() - static_cast<int>(padding.size());
  TESSERA_CHECK(lead >= 0, "pad", "{} dims are padded, and shape {} has {}; give one pair a dim",
                padding.size(), x.shape().str(), x.ndim());
  for (int d = lead; d < x.ndim(); ++d)
    check_padding(x, d, padding[static_cast<std::size_t>(d - lead)], mode);
  if (mode == PadMode::kCircular) return with_edges(without_cut(x, padding), added(padding), mode);
  return contiguous(without_cut(with_edges(x, added(padding), mode), padding));
}

Tensor roll(const Tensor& x, std::int64_t shift) { return composed::roll(x, shift); }

Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const DimList& dims) {
  return composed::roll(x, shifts, dims);
}

Tensor fliplr(const Tensor& x) { return composed::fliplr(x); }

Tensor flipud(const Tensor& x) { return composed::flipud(x); }

Tensor rot90(const Tensor& x, std::int64_t times, int dim0, int dim1) {
  return composed::rot90(x, times, dim0, dim1);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& counts, int dim,
                         const RepeatInterleaveOptions& options) {
  return composed::repeat_interleave(x, counts, dim, options);
}

Tensor ravel(const Tensor& x) { return composed::ravel(x); }

Tensor reshape_as(const Tensor& x, const Tensor& other) { return composed::reshape_as(x, other); }

}  // namespace tessera
