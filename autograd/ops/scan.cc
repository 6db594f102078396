#include "tessera/autograd/ops/scan.h"

#include <limits>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/choice.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/autograd/ops/reduced_dims.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// A dim that is scanned, and how.
struct Line {
  int dim;
  bool reverse;

  ScanOptions onward() const { return {.reverse = reverse}; }
  ScanOptions back() const { return {.reverse = !reverse}; }
};

// [n, n]: whether result k, of column k, is made of element i, of row i.
Tensor is_made_of(std::int64_t n, bool reverse, Device device) {
  const Tensor all = ones({n, n}, {.dtype = DType::kBool, .device = device});
  return reverse ? tril(all) : triu(all);
}

}  // namespace

Variable cumsum(const Variable& x, int dim, const ScanOptions& options) {
  if (options.dtype)
    return detail::in_dtype(x, options.dtype, [&](const Variable& v) {
      return cumsum(v, dim, {.reverse = options.reverse});
    });
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("cumsum"), [&](auto&... v) { return cumsum(v..., dim, options); }, x);
  return record_twice("cumsum", cumsum(x.tensor(), dim, options), {x},
                      [dim, reverse = options.reverse](const Variable& dy, const BackwardContext&) {
                        return Gradients{cumsum(dy, dim, {.reverse = !reverse})};
                      });
}

namespace {

// dx[i] = sum of dy[k] * (the product without x[i]) over the results k that contain x[i]. Before the
// first 0 of a line the product without x[i] is y[k] / x[i]. For the first 0 it is the running
// product that leaves it out; for later elements it is 0.
Tensor product_gradient(const Tensor& dy, const Tensor& x, const Tensor& y, const Line& line) {
  const auto gathered = [&](const Tensor& products) {
    return cumsum(mul(dy, products), line.dim, line.back());
  };
  const Tensor is_zero = eq(x, 0);
  const Tensor count = cumsum(is_zero, line.dim, line.onward());
  const Tensor first = logical_and(is_zero, eq(count, 1));
  const Tensor before = div(gathered(y), masked_fill(x, is_zero, 1));
  const Tensor at_zero = gathered(cumprod(masked_fill(x, first, 1), line.dim, line.onward()));
  return where(eq(count, 0), before, where(first, at_zero, 0));
}

// The same as variables: running products over a further dim, in which each element is left out
// once.
Variable product_gradient(const Variable& dy, const Variable& x, const Line& line) {
  const detail::Rows as_rows(x.shape(), {line.dim});
  const Variable rows = as_rows.join(x);
  const std::int64_t m = rows.dim(0), n = rows.dim(1);
  const Tensor own =
      one_hot(arange(n, {.dtype = DType::kI64, .device = x.device()}), n, DType::kBool);
  const Variable others = masked_fill(expand(reshape(rows, {m, 1, n}), {m, n, n}), own, 1);
  const Variable products = cumprod(others, 2, line.onward());
  const Tensor unrelated = logical_not(is_made_of(n, line.reverse, x.device()));
  const Variable slopes = masked_fill(products, unrelated, 0);
  return as_rows.restore(sum(mul(slopes, reshape(as_rows.join(dy), {m, 1, n})), {2}));
}

}  // namespace

Variable cumprod(const Variable& x, int dim, const ScanOptions& options) {
  if (options.dtype)
    return detail::in_dtype(x, options.dtype, [&](const Variable& v) {
      return cumprod(v, dim, {.reverse = options.reverse});
    });
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("cumprod"), [&](auto&... v) { return cumprod(v..., dim, options); }, x);
  const Tensor y = cumprod(x.tensor(), dim, options);
  return record_twice(
      "cumprod", y, {x},
      [line = Line{dim, options.reverse}, x = SavedVariable(x, "cumprod"),
       y = SavedTensor(y, "cumprod")](const Variable& dy, const BackwardContext& context) {
        const Variable& from = x.unpack();
        if (context.create_graph() && from.numel() > 0)
          return Gradients{product_gradient(dy, from, line)};
        const DType wide = compute_dtype(from.dtype());
        const Tensor dx = product_gradient(cast(dy.tensor(), wide), cast(from.tensor(), wide),
                                           cast(y.unpack(), wide), line);
        return Gradients{Variable(cast(dx, from.dtype()))};
      });
}

namespace {

// dx[i] = sum of dy[k] exp(x[i] - y[k]). Positive and negative terms are added as logarithms, since
// exp(-y) alone may overflow.
Tensor log_sum_gradient(const Tensor& dy, const Tensor& x, const Tensor& y, const Line& line) {
  const Tensor shift = masked_fill(y, eq(y, kNone), 0), size = log(abs(dy));
  const auto part = [&](const Tensor& counted) {
    const Tensor terms = sub(where(counted, size, kNone), shift);
    return exp(add(logcumsumexp(terms, line.dim, {.reverse = !line.reverse}), x));
  };
  return sub(part(gt(dy, 0)), part(lt(dy, 0)));
}

// The same as variables, with a further dim for k.
Variable log_sum_gradient(const Variable& dy, const Variable& x, const Variable& y,
                          const Line& line) {
  const detail::Rows as_rows(x.shape(), {line.dim});
  const Variable rows = as_rows.join(x);
  const std::int64_t m = rows.dim(0), n = rows.dim(1);
  const auto of_results = [&](const Variable& v) { return reshape(as_rows.join(v), {m, 1, n}); };
  const Variable shift = masked_fill(y, eq(y.tensor(), kNone), 0);
  const Tensor unrelated = logical_not(is_made_of(n, line.reverse, x.device()));
  const Variable weights =
      exp(masked_fill(sub(reshape(rows, {m, n, 1}), of_results(shift)), unrelated, kNone));
  return as_rows.restore(sum(mul(weights, of_results(dy)), {2}));
}

}  // namespace

Variable logcumsumexp(const Variable& x, int dim, const LogcumsumexpOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("logcumsumexp"),
        [&](auto&... v) { return logcumsumexp(v..., dim, options); }, x);
  const Tensor y = logcumsumexp(x.tensor(), dim, options);
  return record_twice(
      "logcumsumexp", y, {x},
      [line = Line{dim, options.reverse}, x = SavedVariable(x, "logcumsumexp"),
       y = SavedTensor(y, "logcumsumexp")](const Variable& dy, const BackwardContext& context) {
        const Variable& from = x.unpack();
        if (context.create_graph() && from.numel() > 0)
          return Gradients{log_sum_gradient(dy, from, context.output(0, y.unpack()), line)};
        const DType wide = compute_dtype(from.dtype());
        const Tensor dx = log_sum_gradient(cast(dy.tensor(), wide), cast(from.tensor(), wide),
                                           cast(y.unpack(), wide), line);
        return Gradients{Variable(cast(dx, from.dtype()))};
      });
}

VariableAndIndices cummax(const Variable& x, int dim) {
  return detail::record_choice("cummax", x, dim, cummax(x.tensor(), dim),
                               detail::Chosen::kRepeatedly);
}

VariableAndIndices cummin(const Variable& x, int dim) {
  return detail::record_choice("cummin", x, dim, cummin(x.tensor(), dim),
                               detail::Chosen::kRepeatedly);
}

}  // namespace tessera
