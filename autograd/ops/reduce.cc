#include "tessera/autograd/ops/reduce.h"

#include <cmath>
#include <limits>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/ops/reduced_dims.h"
#include "tessera/tensor/ops/composed/nan_reductions.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/mask.h"

namespace tessera {
namespace {

using detail::kept_shape;
using detail::spread;

std::int64_t reduced_count(const Shape& from, const Shape& kept) {
  std::int64_t count = 1;
  for (int dim = 0; dim < kept.ndim(); ++dim) count *= kept[dim] == from[dim] ? 1 : from[dim];
  return count;
}

// What each element of an extreme's gradient gets: nothing, or its share among equals.
Variable extreme(const char* name, const Tensor& y, const Variable& x, const Shape& kept) {
  return record_twice(name, y, {x},
                      [name, kept, x = SavedTensor(x, name), y = SavedTensor(y, name)](
                          const Variable& dy, const BackwardContext&) {
                        const Tensor share = detail::shares(eq(x.unpack(), y.unpack().view(kept)),
                                                            kept, x.unpack().dtype());
                        return Gradients{mul(spread(dy, kept, share.shape()), Variable(share))};
                      });
}

}  // namespace

Variable sum(const Variable& x, const DimList& dims, bool keep_dims) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("sum"), [&](auto& v) { return sum(v, dims, keep_dims); }, x);
  return record_twice("sum", sum(x.tensor(), dims, keep_dims), {x},
                      [from = x.shape(), kept = kept_shape(x.shape(), dims)](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{spread(dy, kept, from)};
                      });
}

Variable sum(const Variable& x, const DimList& dims, const ReduceOptions& options) {
  return detail::in_dtype(x, options.dtype,
                          [&](const Variable& v) { return sum(v, dims, options.keep_dims); });
}

Variable mean(const Variable& x, const DimList& dims, bool keep_dims) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("mean"), [&](auto& v) { return mean(v, dims, keep_dims); }, x);
  const Tensor y = mean(x.tensor(), dims, keep_dims);
  const Shape kept = kept_shape(x.shape(), dims);
  return record_twice("mean", y, {x},
                      [from = x.shape(), kept](const Variable& dy, const BackwardContext&) {
                        const auto count = static_cast<double>(reduced_count(from, kept));
                        return Gradients{spread(mul(dy, 1.0 / count), kept, from)};
                      });
}

Variable mean(const Variable& x, const DimList& dims, const ReduceOptions& options) {
  return detail::in_dtype(x, options.dtype,
                          [&](const Variable& v) { return mean(v, dims, options.keep_dims); });
}

Variable amax(const Variable& x, const DimList& dims, bool keep_dims) {
  return extreme("amax", amax(x.tensor(), dims, keep_dims), x, kept_shape(x.shape(), dims));
}

Variable amin(const Variable& x, const DimList& dims, bool keep_dims) {
  return extreme("amin", amin(x.tensor(), dims, keep_dims), x, kept_shape(x.shape(), dims));
}

VariableMinMax aminmax(const Variable& x, const DimList& dims, bool keep_dims) {
  const MinMax y = aminmax(x.tensor(), dims, keep_dims);
  const Shape kept = kept_shape(x.shape(), dims);
  return {.min = extreme("aminmax", y.min, x, kept), .max = extreme("aminmax", y.max, x, kept)};
}

Variable nansum(const Variable& x, const DimList& dims, bool keep_dims) {
  return composed::nansum(x, dims, keep_dims);
}

Variable nanmean(const Variable& x, const DimList& dims, bool keep_dims) {
  return composed::nanmean(x, dims, keep_dims);
}

namespace {

// The product of the other elements, for each. With more than one 0 among the factors that is 0,
// with one 0 only that element has another; else it is the product divided by the element.
Tensor other_factors(const Tensor& x, const DimList& dims) {
  const Tensor is_zero = eq(x, 0);
  const Tensor nonzero = masked_fill(x, is_zero, 1);
  const Tensor zeros =
      sub(static_cast<double>(reduced_count(x.shape(), kept_shape(x.shape(), dims))),
          count_nonzero(x, dims, true));
  const Tensor product = prod(nonzero, dims, true);
  const auto with_zeros = [&](double n) { return where(eq(zeros, n), product, 0); };
  return where(is_zero, with_zeros(1), div(with_zeros(0), nonzero));
}

// The same as variables: a product over a further dim, in which each element is left out once.
Variable other_factors(const Variable& x, const DimList& dims) {
  const detail::Rows as_rows(x.shape(), dims);
  const Variable rows = as_rows.join(x);
  const std::int64_t m = rows.dim(0), n = rows.dim(1);
  const Tensor own =
      one_hot(arange(n, {.dtype = DType::kI64, .device = x.device()}), n, DType::kBool);
  const Variable square = expand(reshape(rows, {m, 1, n}), {m, n, n});
  return as_rows.restore(prod(masked_fill(square, own, 1), {2}));
}

}  // namespace

Variable prod(const Variable& x, const DimList& dims, bool keep_dims) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("prod"), [&](auto&... v) { return prod(v..., dims, keep_dims); }, x);
  const Tensor y = prod(x.tensor(), dims, keep_dims);
  return record_twice("prod", y, {x},
                      [dims, kept = kept_shape(x.shape(), dims), x = SavedVariable(x, "prod")](
                          const Variable& dy, const BackwardContext& context) {
                        const Variable& factors = x.unpack();
                        const bool again = context.create_graph() && factors.numel() > 0;
                        const Variable others =
                            again ? other_factors(factors, dims)
                                  : Variable(other_factors(factors.tensor(), dims));
                        return Gradients{mul(spread(dy, kept, factors.shape()), others)};
                      });
}

Variable prod(const Variable& x, const DimList& dims, const ReduceOptions& options) {
  return detail::in_dtype(x, options.dtype,
                          [&](const Variable& v) { return prod(v, dims, options.keep_dims); });
}

Variable logsumexp(const Variable& x, const DimList& dims, bool keep_dims) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("logsumexp"),
        [&](auto&... v) { return logsumexp(v..., dims, keep_dims); }, x);
  const Tensor y = logsumexp(x.tensor(), dims, keep_dims);
  return record_twice(
      "logsumexp", y, {x},
      [kept = kept_shape(x.shape(), dims), x = SavedVariable(x, "logsumexp"),
       y = SavedTensor(y, "logsumexp")](const Variable& dy, const BackwardContext& context) {
        const Variable& from = x.unpack();
        const Tensor& sums = y.unpack();
        // Of -inf alone: exp(-inf - 0) is 0, where -inf - -inf would be NaN.
        const double none = -std::numeric_limits<double>::infinity();
        const Tensor empty = eq(sums, none);
        const Variable shift = masked_fill(context.output(0, sums), empty, 0);
        const Variable weights = exp(sub(from, spread(shift, kept, from.shape())));
        return Gradients{mul(spread(dy, kept, from.shape()), weights)};
      });
}

namespace {

// d var / d x, times dy: the deviations, scaled. The deviations sum to 0, so the mean's own
// derivative adds nothing.
Variable var_gradient(const Variable& dy, const Variable& x, const DimList& dims,
                      double correction) {
  const Shape kept = kept_shape(x.shape(), dims);
  const double degrees =
      std::max(0.0, static_cast<double>(reduced_count(x.shape(), kept)) - correction);
  const Variable deviation = sub(x, mean(x, dims, true));
  return mul(spread(mul(dy, 2.0 / degrees), kept, x.shape()), deviation);
}

}  // namespace

Variable var(const Variable& x, const DimList& dims, const VarOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("var"), [&](auto&... v) { return var(v..., dims, options); }, x);
  return record_twice("var", var(x.tensor(), dims, options), {x},
                      [dims, correction = options.correction, x = SavedVariable(x, "var")](
                          const Variable& dy, const BackwardContext&) {
                        return Gradients{var_gradient(dy, x.unpack(), dims, correction)};
                      });
}

Variable stddev(const Variable& x, const DimList& dims, const VarOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("stddev"), [&](auto&... v) { return stddev(v..., dims, options); }, x);
  const Tensor y = stddev(x.tensor(), dims, options);
  return record_twice(
      "stddev", y, {x},
      [dims, correction = options.correction, x = SavedVariable(x, "stddev"),
       y = SavedTensor(y, "stddev")](const Variable& dy, const BackwardContext& context) {
        const Tensor& root = y.unpack();
        const Tensor none = eq(root, 0);
        const Variable divisor = masked_fill(context.output(0, root), none, 1);
        const Variable dvar = masked_fill(div(mul(dy, 0.5), divisor), none, 0);
        return Gradients{var_gradient(dvar, x.unpack(), dims, correction)};
      });
}

VariableVarMean var_mean(const Variable& x, const DimList& dims, const VarOptions& options) {
  return {.var = var(x, dims, options), .mean = mean(x, dims, options.keep_dims)};
}

VariableStdMean std_mean(const Variable& x, const DimList& dims, const VarOptions& options) {
  return {.stddev = stddev(x, dims, options), .mean = mean(x, dims, options.keep_dims)};
}

Variable sum_to_shape(const Variable& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Shape kept = Shape::filled(x.ndim(), 1);
  const int lead = x.ndim() - shape.ndim();
  for (int dim = 0; dim < shape.ndim() && lead >= 0; ++dim) kept[lead + dim] = shape[dim];
  return record_twice("sum_to_shape", sum_to_shape(x.tensor(), shape), {x},
                      [from = x.shape(), kept](const Variable& dy, const BackwardContext&) {
                        return Gradients{spread(dy, kept, from)};
                      });
}

namespace {

using detail::spread;

// d norm / d x.
Variable slope(const Variable& x, const Variable& y, double p, const Shape& kept) {
  const Tensor& from = x.tensor();
  if (p == 0) return Variable(zeros(from.shape(), from.options()));
  if (p == 1) return Variable(sign(from));
  if (std::isinf(p)) {
    const Tensor extreme = eq(abs(from), contiguous(y.tensor()).view(kept));
    return Variable(mul(sign(from), detail::shares(extreme, kept, from.dtype())));
  }
  const Variable divisor = spread(masked_fill(y, eq(y.tensor(), 0), 1), kept, from.shape());
  if (p == 2) return div(x, divisor);
  // sign (|x| / norm)^(p - 1), apart from elements that are 0.
  const Tensor none = eq(from, 0);
  const Variable ratio = div(masked_fill(abs(x), none, 1), divisor);
  return masked_fill(mul(pow(ratio, p - 1), Variable(sign(from))), none, 0);
}

}  // namespace

Variable norm(const Variable& x, const DimList& dims, const NormOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("norm"), [&](auto&... v) { return norm(v..., dims, options); }, x);
  const Tensor y = norm(x.tensor(), dims, options);
  return record_twice(
      "norm", y, {x},
      [p = options.p, kept = detail::kept_shape(x.shape(), dims), x = SavedVariable(x, "norm"),
       y = SavedTensor(y, "norm")](const Variable& dy, const BackwardContext& context) {
        const Variable& from = x.unpack();
        const Variable result = context.output(0, y.unpack());
        return Gradients{mul(spread(dy, kept, from.shape()), slope(from, result, p, kept))};
      });
}

}  // namespace tessera
