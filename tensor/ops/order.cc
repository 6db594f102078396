#include "tessera/tensor/ops/order.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/order.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {
namespace {

// `dim` counted from the front.
int checked_dim(const char* where, const Tensor& x, int dim) {
  ops::check_defined(where, "the tensor", x);
  TESSERA_CHECK(x.ndim() >= 1, where, "needs at least 1 dim, got a 0-d tensor; unsqueeze it");
  return normalize_dim(dim, x.ndim(), where);
}

Tensor positions(const Shape& shape, Device device) {
  return Tensor::empty(shape, {.dtype = DType::kI64, .device = device});
}

// The position of the extreme, with the dim kept.
Tensor extreme(const char* where, const Tensor& x, int dim, bool largest) {
  const int d = checked_dim(where, x, dim);
  TESSERA_CHECK(x.dim(d) > 0, where, "dim {} of {} is empty; there is no {} element", d,
                x.shape().str(), largest ? "largest" : "smallest");
  const Tensor out = positions(x.shape().with(d, 1), x.device());
  launch<ArgExtremeKernel>(x.device(), {.x = read(x.transpose(d, -1)),
                                        .y = write(out.transpose(d, -1).select(-1, 0)),
                                        .largest = largest});
  return out;
}

// No elements have no extreme.
const Tensor& checked_elements(const char* where, const Tensor& x) {
  ops::check_defined(where, "the tensor", x);
  TESSERA_CHECK(x.numel() > 0, where, "shape {} has no elements; there is nothing to choose",
                x.shape().str());
  return x;
}

Tensor dropped(const Tensor& x, int dim, bool keep_dims) { return keep_dims ? x : x.squeeze(dim); }

ValuesAndIndices with_values(const Tensor& x, int dim, const Tensor& indices, bool keep_dims) {
  return {.values = dropped(gather(x, dim, indices), dim, keep_dims),
          .indices = dropped(indices, dim, keep_dims)};
}

// The first k positions in sorted order.
Tensor sorted_positions(const Tensor& x, int dim, std::int64_t k, bool descending) {
  const Tensor out = positions(x.shape().with(dim, k), x.device());
  launch<ArgsortKernel>(x.device(), {.x = read(x.transpose(dim, -1)),
                                     .y = write(out.transpose(dim, -1)),
                                     .descending = descending});
  return out;
}

}  // namespace

Tensor argmax(const Tensor& x, int dim, bool keep_dims) {
  return dropped(extreme("argmax", x, dim, true), dim, keep_dims);
}

Tensor argmin(const Tensor& x, int dim, bool keep_dims) {
  return dropped(extreme("argmin", x, dim, false), dim, keep_dims);
}

ValuesAndIndices max(const Tensor& x, int dim, bool keep_dims) {
  return with_values(x, dim, extreme("max", x, dim, true), keep_dims);
}

ValuesAndIndices min(const Tensor& x, int dim, bool keep_dims) {
  return with_values(x, dim, extreme("min", x, dim, false), keep_dims);
}

Tensor max(const Tensor& x) { return amax(checked_elements("max", x)); }

Tensor min(const Tensor& x) { return amin(checked_elements("min", x)); }

Tensor argsort(const Tensor& x, int dim, const SortOptions& options) {
  const int d = checked_dim("argsort", x, dim);
  return sorted_positions(x, d, x.dim(d), options.descending);
}

ValuesAndIndices sort(const Tensor& x, int dim, const SortOptions& options) {
  const int d = checked_dim("sort", x, dim);
  return with_values(x, d, sorted_positions(x, d, x.dim(d), options.descending), true);
}

ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim, const TopkOptions& options) {
  const int d = checked_dim("topk", x, dim);
  TESSERA_CHECK(0 <= k && k <= x.dim(d), "topk",
                "k is {}, and dim {} of {} has {} elements; give 0 <= k <= {}", k, d,
                x.shape().str(), x.dim(d), x.dim(d));
  return with_values(x, d, sorted_positions(x, d, k, options.largest), true);
}

}  // namespace tessera
