#include <limits>

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

constexpr const char* kScatterReduce = "scatter_reduce";
constexpr const char* kScatterReduceInPlace = "scatter_reduce_";

ScatterMode mode_of(ScatterReduce reduce) {
  switch (reduce) {
    case ScatterReduce::kSum:
    case ScatterReduce::kMean:
      return ScatterMode::kAdd;
    case ScatterReduce::kProd:
      return ScatterMode::kMultiply;
    case ScatterReduce::kAmax:
      return ScatterMode::kMaximum;
    case ScatterReduce::kAmin:
      return ScatterMode::kMinimum;
  }
  return ScatterMode::kAdd;
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kBF16:
    case DType::kF16:
      return std::numeric_limits<double>::infinity();
    case DType::kI64:
      return 0x1p63;  // the nearest number that exists; full() clamps it
    case DType::kI32:
      return std::numeric_limits<std::int32_t>::max();
    case DType::kU8:
      return std::numeric_limits<std::uint8_t>::max();
    case DType::kBool:
      return 1;
  }
  return 0;
}

// What changes nothing that it is combined with.
double neutral(ScatterReduce reduce, DType dtype) {
  switch (reduce) {
    case ScatterReduce::kSum:
    case ScatterReduce::kMean:
      return 0;
    case ScatterReduce::kProd:
      return 1;
    case ScatterReduce::kAmax:
      return dtype == DType::kU8 ? 0 : -largest(dtype) - (dtype == DType::kI32 ? 1 : 0);
    case ScatterReduce::kAmin:
      return largest(dtype);
  }
  return 0;
}

// Divides each place of `sums` by the number of elements that it is the sum of. Counts are i64,
// because other dtypes cannot count as far.
void divide_by_counts(const Tensor& sums, const ops::Chosen& chosen, bool include_self,
                      const ops::Put& how) {
  const TensorOptions kind{.dtype = DType::kI64, .device = sums.device()};
  const Tensor counts = full(sums.shape(), include_self ? 1 : 0, kind);
  const Tensor each = full({}, 1, kind).expand(chosen.index.shape());
  ops::add_into(counts, chosen, each, how);
  const Tensor divisor = maximum(counts, 1);
  copy_(sums, is_floating(sums.dtype()) ? div(sums, cast(divisor, sums.dtype()))
                                        : floor_divide(sums, divisor));
}

// `out`, which has no 16-bit dtype, holds x.
void reduce_into(const Tensor& result, const ops::Chosen& chosen, const Tensor& source,
                 const ScatterReduceOptions& options, ops::Put how) {
  const Tensor out = ops::as_line(result), src = ops::as_line(source);
  if (!options.include_self) {
    const Tensor none = full({}, neutral(options.reduce, out.dtype()), out.options());
    ops::put(out, chosen, none.expand(chosen.index.shape()), how);
  }
  how.mode = mode_of(options.reduce);
  ops::fold_into(out, chosen, src, how);
  if (options.reduce == ScatterReduce::kMean)
    divide_by_counts(out, chosen, options.include_self, how);
}

template <const char* const& where>
ops::Chosen checked(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  ops::Chosen chosen = ops::scattered(where, x, dim, index, src);
  TESSERA_CHECK(x.dtype() != DType::kBool, where, "bool values cannot be reduced; cast them to u8");
  return chosen;
}

}  // namespace

Tensor scatter_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                      const ScatterReduceOptions& options) {
  const ops::Chosen chosen = checked<kScatterReduce>(x, dim, index, src);
  const DType dtype = compute_dtype(x.dtype());
  const Tensor out = dtype == x.dtype() ? clone(x) : cast(x, dtype);
  reduce_into(out, chosen, dtype == x.dtype() ? src : cast(src, dtype), options,
              {.where = kScatterReduce, .bad_index = ops::throw_bad_index<kScatterReduce>});
  return dtype == x.dtype() ? out : cast(out, x.dtype());
}

void scatter_reduce_(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                     const ScatterReduceOptions& options) {
  const ops::Chosen chosen = checked<kScatterReduceInPlace>(x, dim, index, src);
  ops::check_writable(kScatterReduceInPlace, x);
  const DType dtype = compute_dtype(x.dtype());
  const Tensor out = dtype == x.dtype() ? x : cast(x, dtype);
  reduce_into(
      out, chosen, dtype == x.dtype() ? ops::away_from(x, src) : cast(src, dtype), options,
      {.where = kScatterReduceInPlace, .bad_index = ops::throw_bad_index<kScatterReduceInPlace>});
  if (dtype != x.dtype()) copy_(x, out);
  x.set_last_writer(kScatterReduceInPlace);
}

}  // namespace tessera
