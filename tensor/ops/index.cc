#include "tessera/tensor/ops/index.h"

#include <cmath>

#include "tessera/tensor/kernels/fill.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/internal/overlap.h"

namespace tessera {
namespace {

using ops::add_into;
using ops::check_addable;
using ops::check_index;
using ops::Chosen;
using ops::gathered;
using ops::put;
using ops::Put;
using ops::slices;
using ops::throw_bad_index;

constexpr const char* kGather = "gather";
constexpr const char* kTakeAlongDim = "take_along_dim";
constexpr const char* kScatter = "scatter";
constexpr const char* kScatterInPlace = "scatter_";
constexpr const char* kScatterAdd = "scatter_add";
constexpr const char* kScatterAddInPlace = "scatter_add_";
constexpr const char* kIndexSelect = "index_select";
constexpr const char* kIndex = "index";
constexpr const char* kIndexPut = "index_put";

void check_extents(const char* where, const Tensor& x, int dim, const Tensor& index) {
  TESSERA_CHECK(index.ndim() == x.ndim(), where,
                "the index has shape {} and the tensor {}; they need as many dims",
                index.shape().str(), x.shape().str());
  for (int d = 0; d < x.ndim(); ++d) {
    TESSERA_CHECK(d == dim || index.dim(d) <= x.dim(d), where,
                  "the index has shape {} and the tensor {}; outside dim {} it must fit inside",
                  index.shape().str(), x.shape().str(), dim);
  }
}

// `x` for a scatter, which reads it while it writes `out` in another order.
Tensor away_from(const Tensor& out, const Tensor& x) { return ops::overlap(x, out) ? clone(x) : x; }

// Checks a scatter; returns the selected elements.
Chosen scattered(const char* where, const Tensor& x, int dim, const Tensor& index,
                 const Tensor& src) {
  check_index(where, x, index);
  const int d = normalize_dim(dim, x.ndim(), where);
  check_extents(where, x, d, index);
  ops::check_operands(where, x, src);
  bool fits = src.ndim() == index.ndim();
  for (int i = 0; fits && i < src.ndim(); ++i) fits = index.dim(i) <= src.dim(i);
  TESSERA_CHECK(fits, where, "the index has shape {} and the source {}; it must fit inside",
                index.shape().str(), src.shape().str());
  return {.dim = d, .index = away_from(x, index)};
}

// Several indices as one: the leading dims of x are merged into one dim of `extent`.
struct LeadingIndex {
  Shape shape;   // broadcast shape of the indices
  Tensor index;  // [number of indices]
  Shape rows;    // of x, with the leading dims merged
};

LeadingIndex leading_index(const char* where, const Tensor& x, const std::vector<Tensor>& indices,
                           BadIndex bad_index) {
  ops::check_defined(where, "the tensor", x);
  const int count = static_cast<int>(indices.size());
  TESSERA_CHECK(1 <= count && count <= x.ndim(), where,
                "{} indices for a tensor of shape {}; give between 1 and {}", count,
                x.shape().str(), x.ndim());
  LeadingIndex out;
  for (const Tensor& index : indices) {
    check_index(where, x, index);
    out.shape = broadcast_shapes(out.shape, index.shape(), where);
  }
  out.index = Tensor::empty(out.shape, {.dtype = DType::kI64, .device = x.device()});
  LinearIndexKernel::Args args{.indices = {}, .extents = {}, .y = {}, .bad_index = bad_index};
  std::int64_t merged = 1;
  for (int d = 0; d < count; ++d) {
    const auto i = static_cast<std::size_t>(d);
    args.indices[i] = read(indices[i].expand(out.shape));
    args.extents.push_back(x.dim(d));
    merged *= x.dim(d);
  }
  args.y = write(out.index);
  launch<LinearIndexKernel>(x.device(), args);
  out.index = out.index.view({out.shape.numel()});
  out.rows = {merged};
  for (int d = count; d < x.ndim(); ++d) out.rows.push_back(x.dim(d));
  return out;
}

Shape with_rows(const Shape& shape, const Shape& rows) {
  Shape out = shape;
  for (int d = 1; d < rows.ndim(); ++d) out.push_back(rows[d]);
  return out;
}

void fill_masked(const char* where, const Tensor& out, const Tensor& x, const Tensor& mask,
                 double value) {
  ops::check_defined(where, "the mask", mask);
  ops::check_same_device(where, x, mask);
  TESSERA_CHECK(mask.dtype() == DType::kBool || mask.dtype() == DType::kU8, where,
                "the mask has dtype {}; it must be bool or u8", dtype_name(mask.dtype()));
  TESSERA_CHECK(is_floating(x.dtype()) || value == std::trunc(value), where,
                "the number {} is not whole, and the tensor is {}; cast it first", value,
                dtype_name(x.dtype()));
  TESSERA_CHECK(broadcast_shapes(mask.shape(), x.shape(), where) == x.shape(), where,
                "the mask has shape {}, which does not broadcast to {}", mask.shape().str(),
                x.shape().str());
  Tensor copy;
  MaskedFillKernel::Args args{.x = read(x),
                              .mask = read(ops::apart(mask.expand(x.shape()), out, copy)),
                              .y = overwrite(out, where),
                              .value = value};
  sort_and_merge_dims(args.y.shape, {&args.y.strides, &args.x.strides, &args.mask.strides});
  args.x.shape = args.mask.shape = args.y.shape;
  launch<MaskedFillKernel>(out.device(), args);
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  check_index(kGather, x, index);
  const int d = normalize_dim(dim, x.ndim(), kGather);
  check_extents(kGather, x, d, index);
  return gathered(x, {.dim = d, .index = index}, throw_bad_index<kGather>);
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, int dim) {
  check_index(kTakeAlongDim, x, index);
  const int d = normalize_dim(dim, x.ndim(), kTakeAlongDim);
  TESSERA_CHECK(index.ndim() == x.ndim(), kTakeAlongDim,
                "the index has shape {} and the tensor {}; they need as many dims",
                index.shape().str(), x.shape().str());
  for (int i = 0; i < x.ndim(); ++i) {
    TESSERA_CHECK(i == d || index.dim(i) == x.dim(i) || index.dim(i) == 1 || x.dim(i) == 1,
                  kTakeAlongDim,
                  "the index has shape {} and the tensor {}; outside dim {} extents must be equal "
                  "or 1",
                  index.shape().str(), x.shape().str(), d);
  }
  const Shape outside =
      broadcast_shapes(x.shape().with(d, 1), index.shape().with(d, 1), kTakeAlongDim);
  return gathered(x.expand(outside.with(d, x.dim(d))),
                  {.dim = d, .index = index.expand(outside.with(d, index.dim(d)))},
                  throw_bad_index<kTakeAlongDim>);
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatter, x, dim, index, src);
  const Tensor out = clone(x);
  put(out, chosen, src, {.where = kScatter, .bad_index = throw_bad_index<kScatter>});
  return out;
}

void scatter_(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatterInPlace, x, dim, index, src);
  ops::check_writable(kScatterInPlace, x);
  put(x, chosen, away_from(x, src),
      {.where = kScatterInPlace, .bad_index = throw_bad_index<kScatterInPlace>});
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatterAdd, x, dim, index, src);
  check_addable(kScatterAdd, x);
  const Tensor out = clone(x);
  add_into(out, chosen, src, {.where = kScatterAdd, .bad_index = throw_bad_index<kScatterAdd>});
  return out;
}

void scatter_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatterAddInPlace, x, dim, index, src);
  check_addable(kScatterAddInPlace, x);
  ops::check_writable(kScatterAddInPlace, x);
  add_into(x, chosen, away_from(x, src),
           {.where = kScatterAddInPlace, .bad_index = throw_bad_index<kScatterAddInPlace>});
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  check_index(kIndexSelect, x, index);
  const int d = normalize_dim(dim, x.ndim(), kIndexSelect);
  TESSERA_CHECK(index.ndim() == 1, kIndexSelect, "needs an index of 1 dim, got shape {}",
                index.shape().str());
  return gathered(x, slices(index, d, x.shape().with(d, index.dim(0))),
                  throw_bad_index<kIndexSelect>);
}

Tensor index(const Tensor& x, const std::vector<Tensor>& indices) {
  const LeadingIndex chosen = leading_index(kIndex, x, indices, throw_bad_index<kIndex>);
  const Tensor rows = indices.size() == 1 ? x : contiguous(x).view(chosen.rows);
  const Shape shape = chosen.rows.with(0, chosen.index.dim(0));
  return gathered(rows, slices(chosen.index, 0, shape), throw_bad_index<kIndex>)
      .view(with_rows(chosen.shape, chosen.rows));
}

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 const IndexPutOptions& options) {
  ops::check_operands(kIndexPut, x, values);
  if (options.accumulate) check_addable(kIndexPut, x);
  const LeadingIndex chosen = leading_index(kIndexPut, x, indices, throw_bad_index<kIndexPut>);
  const Shape shape = with_rows(chosen.shape, chosen.rows);
  TESSERA_CHECK(broadcast_shapes(values.shape(), shape, kIndexPut) == shape, kIndexPut,
                "the values have shape {}, which does not broadcast to {}", values.shape().str(),
                shape.str());
  const Shape rows = chosen.rows.with(0, chosen.index.dim(0));
  const Tensor src = contiguous(values.expand(shape)).view(rows);
  const Tensor out = clone(x);
  const Chosen where = slices(chosen.index, 0, rows);
  const Put how{.where = kIndexPut, .bad_index = throw_bad_index<kIndexPut>};
  if (options.accumulate) {
    add_into(out.view(chosen.rows), where, src, how);
  } else {
    put(out.view(chosen.rows), where, src, how);
  }
  return out;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  ops::check_defined("masked_fill", "the tensor", x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  fill_masked("masked_fill", out, x, mask, value);
  return out;
}

void masked_fill_(const Tensor& x, const Tensor& mask, double value) {
  ops::check_defined("masked_fill_", "the tensor", x);
  ops::check_writable("masked_fill_", x);
  fill_masked("masked_fill_", x, x, mask, value);
}

}  // namespace tessera
