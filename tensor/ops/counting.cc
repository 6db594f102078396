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

void check_countable(const char* where, const Tensor& x, std::optional<std::int64_t> bound) {
  TESSERA_CHECK_AS(StateError, bound || !x.device().is_null(), where,
                   "the size of the result depends on values, which the null device does not "
                   "have; give a bound");
}

// A number that depends on values: `number()` reads it.
template <class Number>
std::int64_t bounded(const char* where, const Tensor& x, std::optional<std::int64_t> bound,
                     const Number& number) {
  check_countable(where, x, bound);
  return bound ? *bound : number();
}

TensorOptions i64_beside(const Tensor& x) { return {.dtype = DType::kI64, .device = x.device()}; }

// Whether each entry of rows [n], or row of rows [n, m], differs from the one before. The first does.
Tensor starts_of(const Tensor& rows) {
  const std::int64_t n = rows.dim(0);
  const Tensor first =
      ones({std::min<std::int64_t>(n, 1)}, {.dtype = DType::kBool, .device = rows.device()});
  const std::int64_t rest = n - first.dim(0);
  Tensor differs = ne(rows.narrow(0, n - rest, rest), rows.narrow(0, 0, rest));
  if (rows.ndim() > 1) differs = any(differs, {1});
  return cat({first, differs}, 0);
}

Tensor numbered(const Tensor& starts) { return sub(cumsum(starts, 0), 1); }

// Runs of equal entries.
struct Groups {
  Tensor number;  // of the group of each entry
  Tensor counts;  // [groups]
  Tensor first;   // [groups], the position of a group's first entry
};

Groups grouped(const char* where, const Tensor& starts, std::optional<std::int64_t> bound,
               BadIndex too_many) {
  const std::int64_t n = starts.dim(0);
  Groups groups{.number = numbered(starts), .counts = {}, .first = {}};
  const std::int64_t count = bounded(where, starts, bound, [&] {
    return n == 0 ? 0 : groups.number.select(0, n - 1).item<std::int64_t>() + 1;
  });
  groups.counts = zeros({count}, i64_beside(starts));
  ops::add_into(groups.counts, {.dim = 0, .index = groups.number},
                ones({n}, groups.counts.options()), {.where = where, .bad_index = too_many});
  groups.first = minimum(sub(cumsum(groups.counts, 0), groups.counts), n - 1);
  return groups;
}

// The number of each entry's value among the distinct values of a line, from 0 in ascending order.
Tensor ranks_of(const Tensor& line) {
  const Tensor order = argsort(line, 0);
  const Tensor number = numbered(starts_of(gather(line, 0, order)));
  return scatter(number, 0, order, number);
}

// The same for rows [n, m], column by column, until all rows differ, if that may be read.
Tensor row_ranks(const Tensor& rows, bool may_wait) {
  const std::int64_t n = rows.dim(0);
  Tensor number = zeros({n}, i64_beside(rows));
  for (std::int64_t c = 0; c < rows.dim(1); ++c) {
    const Tensor column = ranks_of(rows.select(1, c));
    number = c == 0 ? column : ranks_of(add(mul(number, n), column));
    if (may_wait && (n == 0 || max(number).item<std::int64_t>() == n - 1)) break;
  }
  return number;
}

void check_unique(const char* where, const Tensor& x, const UniqueOptions& options) {
  ops::check_defined(where, "the tensor", x);
  TESSERA_CHECK(!options.bound || *options.bound >= 0, where,
                "the bound is {}; it must not be negative", *options.bound);
  check_countable(where, x, options.bound);
}

// What is compared: elements [n], or slices as rows [n, m].
struct Entries {
  Tensor rows;
  int dim = 0;         // of the slices in `source`
  Tensor source;       // where the values are taken from
  Shape inverse = {};  // shape of the inverse
};

Entries entries_of(const char* where, const Tensor& x, std::optional<int> dim) {
  if (!dim) {
    const Tensor line = reshape(x, {x.numel()});
    return {.rows = line, .source = line, .inverse = x.shape()};
  }
  const int d = normalize_dim(*dim, x.ndim(), where);
  const std::int64_t n = x.dim(d), m = x.shape().without(d).numel();
  return {.rows = reshape(x.movedim(d, 0), {n, m}), .dim = d, .source = x, .inverse = {n}};
}

// `entry`: of each group.
UniqueValues chosen(const Entries& entries, const Groups& groups, const Tensor& entry,
                    const Tensor& inverse, const UniqueOptions& options) {
  const Shape shape = entries.source.shape().with(entries.dim, groups.counts.dim(0));
  UniqueValues out{.values = entries.rows.dim(0) == 0
                                 ? zeros(shape, entries.source.options())
                                 : index_select(entries.source, entries.dim, entry),
                   .inverse = {},
                   .counts = {}};
  if (options.return_inverse) out.inverse = inverse.view(entries.inverse);
  if (options.return_counts) out.counts = groups.counts;
  return out;
}

}  // namespace

UniqueValues unique(const Tensor& x, const UniqueOptions& options) {
  check_unique(kUnique, x, options);
  const Entries entries = entries_of(kUnique, x, options.dim);
  const Tensor line =
      options.dim ? row_ranks(entries.rows, !options.bound.has_value()) : entries.rows;
  const Tensor order = argsort(line, 0);
  const Groups groups =
      grouped(kUnique, starts_of(gather(line, 0, order)), options.bound, throw_too_many<kUnique>);
  Tensor inverse;
  if (options.return_inverse) inverse = scatter(groups.number, 0, order, groups.number);
  const Tensor entry = line.dim(0) == 0 ? order : index_select(order, 0, groups.first);
  return chosen(entries, groups, entry, inverse, options);
}

UniqueValues unique_consecutive(const Tensor& x, const UniqueOptions& options) {
  check_unique(kUniqueConsecutive, x, options);
  const Entries entries = entries_of(kUniqueConsecutive, x, options.dim);
  const Groups groups = grouped(kUniqueConsecutive, starts_of(entries.rows), options.bound,
                                throw_too_many<kUniqueConsecutive>);
  return chosen(entries, groups, groups.first, groups.number, options);
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
