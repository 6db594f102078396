#include "tessera/tensor/ops_reduce.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops.h"
#include "tessera/autograd/ops_internal.h"

namespace tessera {
namespace {

// The result's shape if every reduced dim had stayed, with extent 1.
Shape kept_shape(const Shape& shape, std::initializer_list<int> dims, const char* where) {
  if (dims.size() == 0) return Shape::filled(shape.ndim(), 1);
  Shape kept = shape;
  for (int dim : dims) kept[normalize_dim(dim, shape.ndim(), where)] = 1;
  return kept;
}

}  // namespace

Variable sum(const Variable& x, std::initializer_list<int> dims, bool keep_dims) {
  return record_twice("sum", sum(x.tensor(), dims, keep_dims), {x},
                      [from = x.shape(), kept = kept_shape(x.shape(), dims, "sum")](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{expand(reshape(dy, kept), from)};
                      });
}

Variable mean(const Variable& x, std::initializer_list<int> dims, bool keep_dims) {
  const Shape kept = kept_shape(x.shape(), dims, "mean");
  std::int64_t count = 1;
  for (int dim = 0; dim < kept.ndim(); ++dim) count *= kept[dim] == x.dim(dim) ? 1 : x.dim(dim);
  return record_twice("mean", mean(x.tensor(), dims, keep_dims), {x},
                      [from = x.shape(), kept, count](const Variable& dy, const BackwardContext&) {
                        const Variable share = mul(dy, 1.0 / static_cast<double>(count));
                        return Gradients{expand(reshape(share, kept), from)};
                      });
}

Variable sum_to_shape(const Variable& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Shape kept = Shape::filled(x.ndim(), 1);
  const int lead = x.ndim() - shape.ndim();
  for (int dim = 0; dim < shape.ndim() && lead >= 0; ++dim) kept[lead + dim] = shape[dim];
  return record_twice("sum_to_shape", sum_to_shape(x.tensor(), shape), {x},
                      [from = x.shape(), kept](const Variable& dy, const BackwardContext&) {
                        return Gradients{expand(reshape(dy, kept), from)};
                      });
}

}  // namespace tessera
