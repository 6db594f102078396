#include <limits>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/index.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

// An operation whose present values take part: those that do not were replaced by `neutral`.
struct Reduced {
  Tensor y;
  Variable x;
  int dim;
  Tensor index;
  Variable src;  // of the index's shape
  bool counts_self;
};

double neutral(ScatterReduce reduce) {
  switch (reduce) {
    case ScatterReduce::kSum:
    case ScatterReduce::kMean:
      return 0;
    case ScatterReduce::kProd:
      return 1;
    case ScatterReduce::kAmax:
      return -std::numeric_limits<double>::infinity();
    case ScatterReduce::kAmin:
      return std::numeric_limits<double>::infinity();
  }
  return 0;
}

Variable record_sum(const Reduced& r) {
  return record_twice("scatter_reduce", r.y, {r.x, r.src},
                      [dim = r.dim, index = SavedTensor(r.index, "scatter_reduce")](
                          const Variable& dy, const BackwardContext& context) {
                        Gradients gradients(2);
                        if (context.needs(0)) gradients[0] = dy;
                        if (context.needs(1)) gradients[1] = gather(dy, dim, index.unpack());
                        return gradients;
                      });
}

// For each place, how many elements it is the mean of, as a factor of gradients: 16 bits cannot
// count far enough.
Tensor counts_of(const Reduced& r) {
  const TensorOptions kind{.dtype = DType::kI64, .device = r.index.device()};
  const Tensor self = full(r.x.shape(), r.counts_self ? 1 : 0, kind);
  const Tensor counts = scatter_add(self, r.dim, r.index, ones(r.index.shape(), kind));
  return cast(maximum(counts, 1), compute_dtype(r.x.dtype()));
}

Variable record_mean(const Reduced& r) {
  return record_twice("scatter_reduce", r.y, {r.x, r.src},
                      [dim = r.dim, index = SavedTensor(r.index, "scatter_reduce"),
                       counts = counts_of(r)](const Variable& dy, const BackwardContext& context) {
                        Gradients gradients(2);
                        const Variable share = cast(div(dy, Variable(counts)), dy.dtype());
                        if (context.needs(0)) gradients[0] = share;
                        if (context.needs(1)) gradients[1] = gather(share, dim, index.unpack());
                        return gradients;
                      });
}

Variable record_extreme(const Reduced& r) {
  return record_twice(
      "scatter_reduce", r.y, {r.x, r.src},
      [dim = r.dim, counts_self = r.counts_self, index = SavedTensor(r.index, "scatter_reduce"),
       x = SavedTensor(r.x, "scatter_reduce"), src = SavedTensor(r.src, "scatter_reduce"),
       y = SavedTensor(r.y, "scatter_reduce")](const Variable& dy, const BackwardContext& context) {
        const Tensor& at = index.unpack();
        const Tensor same = cast(eq(x.unpack(), y.unpack()), dy.dtype()),
                     // Where x was replaced it may still equal the result, if that is infinite.
            x_is = counts_self ? same : scatter(same, dim, at, 0),
                     src_is = cast(eq(src.unpack(), gather(y.unpack(), dim, at)), dy.dtype());
        const Tensor count = maximum(scatter_add(x_is, dim, at, src_is), 1);
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = mul(dy, Variable(div(x_is, count)));
        if (context.needs(1)) {
          const Tensor share = div(src_is, gather(count, dim, at));
          gradients[1] = mul(gather(dy, dim, at), Variable(share));
        }
        return gradients;
      });
}

// The product of the other elements of each source element's place. Without zeros it is the result
// divided by the element; for the only zero of a place it is the product of the others; for one of
// several zeros it is 0.
Variable product_of_others(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  const ScatterReduceOptions product{.reduce = ScatterReduce::kProd};
  const Tensor is_zero = eq(src.tensor(), 0);
  const Variable ones_for_zeros = masked_fill(src, is_zero, 1);
  const Tensor zeros_at =
      scatter_add(zeros(x.shape(), src.tensor().options()), dim, index, cast(is_zero, src.dtype()));
  const Tensor is_single = logical_and(is_zero, eq(gather(zeros_at, dim, index), 1));
  const Variable whole = gather(scatter_reduce(x, dim, index, src, product), dim, index),
                 others =
                     gather(scatter_reduce(x, dim, index, ones_for_zeros, product), dim, index);
  return where(is_single, others, div(whole, ones_for_zeros));
}

Variable record_product(const Reduced& r) {
  return record_twice(
      "scatter_reduce", r.y, {r.x, r.src},
      [dim = r.dim, index = SavedTensor(r.index, "scatter_reduce"),
       x = SavedVariable(r.x, "scatter_reduce"), src = SavedVariable(r.src, "scatter_reduce")](
          const Variable& dy, const BackwardContext& context) {
        const Tensor& at = index.unpack();
        Gradients gradients(2);
        if (context.needs(0)) {
          const Variable one(ones(dy.shape(), dy.tensor().options()));
          gradients[0] =
              mul(dy, scatter_reduce(one, dim, at, src.unpack(), {.reduce = ScatterReduce::kProd}));
        }
        if (context.needs(1)) {
          gradients[1] =
              mul(gather(dy, dim, at), product_of_others(x.unpack(), dim, at, src.unpack()));
        }
        return gradients;
      });
}

// The elements of src that are read, in the index's shape. A 0-d operand counts as [1].
Variable read_part(const Variable& src, const Tensor& index) {
  Variable out = src.ndim() == 0 ? reshape(src, {1}) : src;
  for (int d = 0; d < out.ndim(); ++d) {
    const std::int64_t extent = index.ndim() == 0 ? 1 : index.dim(d);
    if (out.dim(d) != extent) out = narrow(out, d, 0, extent);
  }
  return reshape(out, index.shape());
}

}  // namespace

Variable scatter_reduce(const Variable& x, int dim, const Tensor& index, const Variable& src,
                        const ScatterReduceOptions& options) {
  Reduced r{.y = scatter_reduce(x.tensor(), dim, index, src.tensor(), options),
            .x = x,
            .dim = dim,
            .index = index,
            .src = read_part(src, index),
            .counts_self = options.include_self};
  if (!is_floating(x.dtype())) return Variable(r.y);
  if (!options.include_self) r.x = scatter(x, dim, index, neutral(options.reduce));
  switch (options.reduce) {
    case ScatterReduce::kSum:
      return record_sum(r);
    case ScatterReduce::kMean:
      return record_mean(r);
    case ScatterReduce::kProd:
      return record_product(r);
    case ScatterReduce::kAmax:
    case ScatterReduce::kAmin:
      return record_extreme(r);
  }
  return {};
}

}  // namespace tessera
