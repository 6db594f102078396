#include "tessera/tensor/ops/order.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/order.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera {
namespace {

using ops::as_line;

// `dim` counted from the front.
int checked_dim(const char* where, const Tensor& x, int dim) {
  ops::check_defined(where, "the tensor", x);
  return ops::along_dim(where, x, dim);
}

// Checks that the dim of a line has elements; returns it, counted from the front.
int filled_dim(const char* where, const Tensor& x, int dim, const char* wanted) {
  const int d = checked_dim(where, x, dim);
  TESSERA_CHECK(as_line(x).dim(d) > 0, where, "dim {} of {} is empty; there is no {} element", d,
                x.shape().str(), wanted);
  return d;
}

// No elements have no extreme.
const Tensor& checked_elements(const char* where, const Tensor& x) {
  ops::check_defined(where, "the tensor", x);
  TESSERA_CHECK(x.numel() > 0, where, "shape {} has no elements; there is nothing to choose",
                x.shape().str());
  return x;
}

Tensor all_elements(const char* where, const Tensor& x) {
  checked_elements(where, x);
  return reshape(x, {x.numel()});
}

// A line's result as that of x: of a 0-d tensor 0-d.
Tensor like(const Tensor& x, const Tensor& line) { return x.ndim() == 0 ? line.view({}) : line; }

Tensor dropped(const Tensor& x, int dim, bool keep_dims) { return keep_dims ? x : x.squeeze(dim); }

// The elements of x at positions along `dim`, which has as many dims as a line of x.
ValuesAndIndices chosen(const Tensor& x, int dim, const Tensor& indices, bool keep_dims = true) {
  const Tensor values = gather(as_line(x), dim, indices);
  return {.values = like(x, dropped(values, dim, keep_dims || x.ndim() == 0)),
          .indices = like(x, dropped(indices, dim, keep_dims || x.ndim() == 0))};
}

// Lines: tensors with at least 1 dim, and a dim counted from the front.

Tensor positions(const Shape& shape, Device device) {
  return Tensor::empty(shape, {.dtype = DType::kI64, .device = device});
}

// The position of the extreme, with the dim kept.
Tensor extreme(const Tensor& x, int dim, bool largest) {
  const Tensor out = positions(x.shape().with(dim, 1), x.device());
  launch<ArgExtremeKernel>(x.device(), {.x = read(x.transpose(dim, -1)),
                                        .y = write(out.transpose(dim, -1).select(-1, 0)),
                                        .largest = largest});
  return out;
}

// The first k positions in sorted order.
Tensor sorted_positions(const Tensor& x, int dim, std::int64_t k, bool descending) {
  const Tensor out = positions(x.shape().with(dim, k), x.device());
  launch<ArgsortKernel>(x.device(), {.x = read(x.transpose(dim, -1)),
                                     .y = write(out.transpose(dim, -1)),
                                     .descending = descending});
  return out;
}

// The position of the k-th smallest, with the dim kept; k counts from 1.
Tensor kth_position(const Tensor& x, int dim, std::int64_t k) {
  return sorted_positions(x, dim, k, false).narrow(dim, k - 1, 1);
}

Tensor median_position(const Tensor& x, int dim) {
  const Tensor middle = kth_position(x, dim, (x.dim(dim) + 1) / 2);
  if (!is_floating(x.dtype())) return middle;
  return where(any(isnan(x), {dim}, true), extreme(x, dim, true), middle);  // the first NaN
}

Tensor nanmedian_position(const Tensor& x, int dim) {
  if (!is_floating(x.dtype())) return median_position(x, dim);
  const Tensor numbers = sum(logical_not(isnan(x)), {dim}, true);
  const Tensor middle = maximum(floor_divide(sub(numbers, 1), 2), 0);
  return gather(sorted_positions(x, dim, x.dim(dim), false), dim, middle);
}

Tensor mode_position(const Tensor& x, int dim) {
  const std::int64_t n = x.dim(dim);
  const Tensor order = sorted_positions(x, dim, n, false), sorted = gather(x, dim, order);
  // In sorted order: how far each element is from the first one that equals it.
  const Tensor first = ones(x.shape().with(dim, 1), {.dtype = DType::kBool, .device = x.device()});
  const Tensor starts =
      cat({first, ne(sorted.narrow(dim, 1, n - 1), sorted.narrow(dim, 0, n - 1))}, dim);
  Shape along = Shape::filled(x.ndim(), 1);
  along[dim] = n;
  const Tensor place = arange(n, {.dtype = DType::kI64, .device = x.device()}).view(along);
  const Tensor start = cummax(where(starts, place, 0), dim).values;
  return gather(order, dim, extreme(sub(place, start), dim, true));
}

// An extreme's position among the elements of a dim, or of all dims.
Tensor arg_extreme(const char* where, const Tensor& x, std::optional<int> dim, bool keep_dims,
                   bool largest) {
  if (!dim) {
    const Tensor at = extreme(all_elements(where, x), 0, largest);
    return at.view(keep_dims ? Shape::filled(x.ndim(), 1) : Shape{});
  }
  const int d = filled_dim(where, x, *dim, largest ? "largest" : "smallest");
  const Tensor at = extreme(as_line(x), d, largest);
  return like(x, dropped(at, d, keep_dims || x.ndim() == 0));
}

}  // namespace

Tensor argmax(const Tensor& x, std::optional<int> dim, bool keep_dims) {
  return arg_extreme("argmax", x, dim, keep_dims, true);
}

Tensor argmin(const Tensor& x, std::optional<int> dim, bool keep_dims) {
  return arg_extreme("argmin", x, dim, keep_dims, false);
}

ValuesAndIndices max(const Tensor& x, int dim, bool keep_dims) {
  const int d = filled_dim("max", x, dim, "largest");
  return chosen(x, d, extreme(as_line(x), d, true), keep_dims);
}

ValuesAndIndices min(const Tensor& x, int dim, bool keep_dims) {
  const int d = filled_dim("min", x, dim, "smallest");
  return chosen(x, d, extreme(as_line(x), d, false), keep_dims);
}

Tensor max(const Tensor& x) { return amax(checked_elements("max", x)); }

Tensor min(const Tensor& x) { return amin(checked_elements("min", x)); }

Tensor argsort(const Tensor& x, int dim, const SortOptions& options) {
  const int d = checked_dim("argsort", x, dim);
  const Tensor line = as_line(x);
  return like(x, sorted_positions(line, d, line.dim(d), options.descending));
}

ValuesAndIndices sort(const Tensor& x, int dim, const SortOptions& options) {
  const int d = checked_dim("sort", x, dim);
  const Tensor line = as_line(x);
  return chosen(x, d, sorted_positions(line, d, line.dim(d), options.descending));
}

ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim, const TopkOptions& options) {
  const int d = checked_dim("topk", x, dim);
  const Tensor line = as_line(x);
  TESSERA_CHECK(0 <= k && k <= line.dim(d), "topk",
                "k is {}, and dim {} of {} has {} elements; give 0 <= k <= {}", k, d,
                x.shape().str(), line.dim(d), line.dim(d));
  TESSERA_CHECK(k == 1 || x.ndim() > 0, "topk", "k is {}, and a 0-d tensor has 1 element; give 1",
                k);
  return chosen(x, d, sorted_positions(line, d, k, options.largest));
}

ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, int dim, bool keep_dims) {
  const int d = checked_dim("kthvalue", x, dim);
  const Tensor line = as_line(x);
  TESSERA_CHECK(1 <= k && k <= line.dim(d), "kthvalue",
                "k is {}, and dim {} of {} has {} elements; k counts from 1", k, d, x.shape().str(),
                line.dim(d));
  return chosen(x, d, kth_position(line, d, k), keep_dims);
}

ValuesAndIndices median(const Tensor& x, int dim, bool keep_dims) {
  const int d = filled_dim("median", x, dim, "middle");
  return chosen(x, d, median_position(as_line(x), d), keep_dims);
}

ValuesAndIndices nanmedian(const Tensor& x, int dim, bool keep_dims) {
  const int d = filled_dim("nanmedian", x, dim, "middle");
  return chosen(x, d, nanmedian_position(as_line(x), d), keep_dims);
}

Tensor median(const Tensor& x) {
  const Tensor line = all_elements("median", x);
  return chosen(line, 0, median_position(line, 0), false).values;
}

Tensor nanmedian(const Tensor& x) {
  const Tensor line = all_elements("nanmedian", x);
  return chosen(line, 0, nanmedian_position(line, 0), false).values;
}

ValuesAndIndices mode(const Tensor& x, int dim, bool keep_dims) {
  const int d = filled_dim("mode", x, dim, "most frequent");
  return chosen(x, d, mode_position(as_line(x), d), keep_dims);
}

}  // namespace tessera
