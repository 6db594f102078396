#include "tessera/tensor/ops/counting.h"

#include <cmath>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/search.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/mask.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/promotion.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera {
namespace {

constexpr const char* kUnique = "unique";
constexpr const char* kUniqueConsecutive = "unique_consecutive";
constexpr const char* kBincount = "bincount";

template <const char* const& where>
[[noreturn]] void throw_too_many(std::int64_t, std::int64_t, std::int64_t extent, int) {
  throw_error<InvalidArgument>(
      where, "there are more than {} distinct values, the bound; give a larger one", extent);
}

// A number that depends on values: `number()` reads it.
template <class Number>
std::int64_t bounded(const char* where, const Tensor& x, std::optional<std::int64_t> bound,
                     const Number& number) {
  if (bound) return *bound;
  TESSERA_CHECK_AS(StateError, !x.device().is_null(), where,
                   "the size of the result depends on values, which the null device does not "
                   "have; give a bound");
  return number();
}

TensorOptions i64_beside(const Tensor& x) { return {.dtype = DType::kI64, .device = x.device()}; }

// The distinct values of line [n], in which equal elements are adjacent, and the number of the
// value of each element.
struct Groups {
  Tensor number;
  UniqueValues found;
};

Groups grouped(const char* where, const Tensor& line, std::optional<std::int64_t> bound,
               BadIndex too_many) {
  const std::int64_t n = line.dim(0);
  const Tensor first =
      ones({std::min<std::int64_t>(n, 1)}, {.dtype = DType::kBool, .device = line.device()});
  const std::int64_t rest = n - first.dim(0);
  const Tensor starts =
      cat({first, ne(line.narrow(0, n - rest, rest), line.narrow(0, 0, rest))}, 0);
  Groups groups{.number = sub(cumsum(starts, 0), 1), .found = {}};
  const std::int64_t count = bounded(where, line, bound, [&] {
    return n == 0 ? 0 : groups.number.select(0, n - 1).item<std::int64_t>() + 1;
  });
  const Tensor counts = zeros({count}, i64_beside(line));
  ops::add_into(counts, {.dim = 0, .index = groups.number}, ones({n}, counts.options()),
                {.where = where, .bad_index = too_many});
  groups.found.counts = counts;
  if (n == 0) {
    groups.found.values = zeros({count}, line.options());
    return groups;
  }
  const Tensor at = minimum(sub(cumsum(counts, 0), counts), n - 1);
  groups.found.values = index_select(line, 0, at);
  return groups;
}

void check_bound(const char* where, const Tensor& x, std::optional<std::int64_t> bound) {
  ops::check_defined(where, "the tensor", x);
  TESSERA_CHECK(!bound || *bound >= 0, where, "the bound is {}; it must not be negative", *bound);
}

UniqueValues chosen(Groups groups, const UniqueOptions& options, const Tensor& inverse,
                    const Shape& shape) {
  UniqueValues out{.values = std::move(groups.found.values), .inverse = {}, .counts = {}};
  if (options.return_inverse) out.inverse = inverse.view(shape);
  if (options.return_counts) out.counts = std::move(groups.found.counts);
  return out;
}

}  // namespace

UniqueValues unique(const Tensor& x, const UniqueOptions& options) {
  check_bound(kUnique, x, options.bound);
  const Tensor line = reshape(x, {x.numel()});
  const Tensor order = argsort(line, 0);
  const Groups groups =
      grouped(kUnique, gather(line, 0, order), options.bound, throw_too_many<kUnique>);
  Tensor inverse;
  if (options.return_inverse) inverse = scatter(groups.number, 0, order, groups.number);
  return chosen(groups, options, inverse, x.shape());
}

UniqueValues unique_consecutive(const Tensor& x, const UniqueOptions& options) {
  check_bound(kUniqueConsecutive, x, options.bound);
  const Groups groups = grouped(kUniqueConsecutive, reshape(x, {x.numel()}), options.bound,
                                throw_too_many<kUniqueConsecutive>);
  return chosen(groups, options, groups.number, x.shape());
}

namespace {

// Checks; the weights in the dtype of the result.
Tensor counted_weights(const Tensor& x, const BincountOptions& options) {
  ops::check_defined(kBincount, "the tensor", x);
  TESSERA_CHECK(!is_floating(x.dtype()) && x.dtype() != DType::kBool, kBincount,
                "needs i64, i32 or u8, got {}; cast it first", dtype_name(x.dtype()));
  TESSERA_CHECK(x.ndim() == 1, kBincount, "needs 1 dim, got shape {}; flatten it", x.shape().str());
  TESSERA_CHECK(options.minlength >= 0, kBincount, "minlength is {}; it must not be negative",
                options.minlength);
  TESSERA_CHECK(!options.bound || *options.bound >= options.minlength, kBincount,
                "the bound {} is below the minlength {}", *options.bound, options.minlength);
  if (!options.weights.defined()) return ones(x.shape(), i64_beside(x));
  ops::check_same_device(kBincount, x, options.weights);
  ops::check_same_shape(kBincount, x, options.weights);
  return options.weights.dtype() == DType::kF32 ? options.weights
                                                : cast(options.weights, DType::kF64);
}

}  // namespace

Tensor bincount(const Tensor& x, const BincountOptions& options) {
  const Tensor weights = counted_weights(x, options);
  const std::int64_t bins = bounded(kBincount, x, options.bound, [&] {
    const std::int64_t most = x.numel() == 0 ? -1 : cast(max(x), DType::kI64).item<std::int64_t>();
    return std::max(options.minlength, most + 1);
  });
  const Tensor out = zeros({bins}, weights.options());
  ops::add_into(out, {.dim = 0, .index = x.dtype() == DType::kU8 ? cast(x, DType::kI64) : x},
                weights, {.where = kBincount, .bad_index = ops::throw_bad_index<kBincount>});
  return out;
}

Tensor histc(const Tensor& x, const HistcOptions& options) {
  constexpr const char* kWhere = "histc";
  ops::check_defined(kWhere, "the tensor", x);
  ops::check_floating(kWhere, x);
  TESSERA_CHECK(options.bins >= 1, kWhere, "bins is {}; it must be at least 1", options.bins);
  TESSERA_CHECK(
      std::isfinite(options.min) && std::isfinite(options.max) && options.min <= options.max,
      kWhere, "the range from {} to {} is not finite and in order", options.min, options.max);
  const TensorOptions wide{.dtype = compute_dtype(x.dtype()), .device = x.device()};
  const Tensor line = cast(reshape(x, {x.numel()}), wide.dtype);
  Tensor low = Tensor::scalar(options.min, wide), high = Tensor::scalar(options.max, wide);
  if (options.min == options.max && x.numel() > 0) {
    const MinMax range = aminmax(line);
    const Tensor same = eq(range.min, range.max);
    low = where(same, sub(range.min, 1), range.min);
    high = where(same, add(range.max, 1), range.max);
  }
  const Tensor width = sub(high, low);
  const Tensor inside = logical_and(logical_and(ge(line, low), le(line, high)), isfinite(width));
  // Multiplied first, so that edges that are whole are exact, unless the product is too large.
  const Tensor distance = sub(line, low), product = mul(distance, options.bins);
  const Tensor part =
      where(isfinite(product), div(product, width), mul(div(distance, width), options.bins));
  const Tensor index =
      clamp(cast(masked_fill(part, logical_not(inside), 0), DType::kI64), 0, options.bins - 1);
  const Tensor counts = zeros({options.bins}, i64_beside(x));
  return cast(scatter_add(counts, 0, index, cast(inside, DType::kI64)), x.dtype());
}

namespace {

Tensor searched(const char* where, const Tensor& sorted, const Tensor& values,
                const SearchsortedOptions& options) {
  ops::check_same_device(where, sorted, values);
  const DType dtype = promote(sorted.dtype(), values.dtype());
  const Tensor x = ops::as_line(values.dtype() == dtype ? values : cast(values, dtype));
  const Tensor lines = sorted.dtype() == dtype ? sorted : cast(sorted, dtype);
  const Tensor out = Tensor::empty(values.shape(), i64_beside(values));
  launch<SearchSortedKernel>(
      values.device(), {.sorted = read(lines.expand(x.shape().with(x.ndim() - 1, sorted.dim(-1)))),
                        .x = read(x),
                        .y = write(ops::as_line(out)),
                        .right = options.right});
  return out;
}

}  // namespace

Tensor searchsorted(const Tensor& sorted, const Tensor& values,
                    const SearchsortedOptions& options) {
  constexpr const char* kWhere = "searchsorted";
  ops::check_defined(kWhere, "the sorted tensor", sorted);
  ops::check_defined(kWhere, "the tensor of values", values);
  bool fits = sorted.ndim() == 1 || (sorted.ndim() > 1 && sorted.ndim() == values.ndim());
  for (int d = 0; fits && d + 1 < sorted.ndim(); ++d) fits = sorted.dim(d) == values.dim(d);
  TESSERA_CHECK(fits, kWhere,
                "the sorted tensor has shape {} and the values {}; give one line, or one for each "
                "line of values",
                sorted.shape().str(), values.shape().str());
  return searched(kWhere, sorted, values, options);
}

Tensor bucketize(const Tensor& x, const Tensor& boundaries, const SearchsortedOptions& options) {
  constexpr const char* kWhere = "bucketize";
  ops::check_defined(kWhere, "the tensor", x);
  ops::check_defined(kWhere, "the tensor of boundaries", boundaries);
  TESSERA_CHECK(boundaries.ndim() == 1, kWhere, "the boundaries have shape {}; they need 1 dim",
                boundaries.shape().str());
  return searched(kWhere, boundaries, x, options);
}

}  // namespace tessera
