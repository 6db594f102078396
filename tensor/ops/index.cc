#include "tessera/tensor/ops/index.h"

#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/composed/masks.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

using ops::add_into;
using ops::as_line;
using ops::away_from;
using ops::check_addable;
using ops::check_extents;
using ops::check_index;
using ops::Chosen;
using ops::gathered;
using ops::put;
using ops::Put;
using ops::scattered;
using ops::slices;
using ops::throw_bad_index;
using ops::throw_bad_signed_index;

constexpr const char* kGather = "gather";
constexpr const char* kTakeAlongDim = "take_along_dim";
constexpr const char* kScatter = "scatter";
constexpr const char* kScatterInPlace = "scatter_";
constexpr const char* kScatterAdd = "scatter_add";
constexpr const char* kScatterAddInPlace = "scatter_add_";
constexpr const char* kIndexSelect = "index_select";
constexpr const char* kIndex = "index";
constexpr const char* kIndexPut = "index_put";
constexpr const char* kIndexPutInPlace = "index_put_";
constexpr const char* kTake = "take";

// One number as the source of a scatter.
Tensor number_source(const char* where, const Tensor& x, const Tensor& index, double value) {
  check_index(where, x, index);
  ops::check_number(where, x, value);
  return full({}, value, x.options()).expand(index.shape());
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

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  check_index(kGather, x, index);
  const int d = ops::along_dim(kGather, x, dim);
  const Tensor line = as_line(x), at = as_line(index);
  check_extents(kGather, line, d, at);
  return gathered(line, {.dim = d, .index = at}, throw_bad_index<kGather>).view(index.shape());
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
  return gathered(
      x.expand(outside.with(d, x.dim(d))),
      {.dim = d, .index = index.expand(outside.with(d, index.dim(d))), .from_back = true},
      throw_bad_signed_index<kTakeAlongDim>);
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatter, x, dim, index, src);
  const Tensor out = clone(x);
  put(as_line(out), chosen, as_line(src),
      {.where = kScatter, .bad_index = throw_bad_index<kScatter>});
  return out;
}

void scatter_(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatterInPlace, x, dim, index, src);
  ops::check_writable(kScatterInPlace, x);
  put(as_line(x), chosen, as_line(away_from(x, src)),
      {.where = kScatterInPlace, .bad_index = throw_bad_index<kScatterInPlace>});
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, double value) {
  const Tensor src = number_source(kScatter, x, index, value);
  return scatter(x, dim, index, src);
}

void scatter_(const Tensor& x, int dim, const Tensor& index, double value) {
  const Tensor src = number_source(kScatterInPlace, x, index, value);
  scatter_(x, dim, index, src);
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatterAdd, x, dim, index, src);
  check_addable(kScatterAdd, x);
  const Tensor out = clone(x);
  add_into(as_line(out), chosen, as_line(src),
           {.where = kScatterAdd, .bad_index = throw_bad_index<kScatterAdd>});
  return out;
}

void scatter_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Chosen chosen = scattered(kScatterAddInPlace, x, dim, index, src);
  check_addable(kScatterAddInPlace, x);
  ops::check_writable(kScatterAddInPlace, x);
  add_into(as_line(x), chosen, as_line(away_from(x, src)),
           {.where = kScatterAddInPlace, .bad_index = throw_bad_index<kScatterAddInPlace>});
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  check_index(kIndexSelect, x, index);
  const int d = ops::along_dim(kIndexSelect, x, dim);
  const Tensor line = as_line(x), at = as_line(index);
  TESSERA_CHECK(at.ndim() == 1, kIndexSelect, "needs an index of 1 dim, got shape {}",
                index.shape().str());
  TESSERA_CHECK(x.ndim() > 0 || at.dim(0) == 1, kIndexSelect,
                "the index has shape {}; a 0-d tensor has 1 element, so give 1 index",
                index.shape().str());
  const Shape shape = line.shape().with(d, at.dim(0));
  return gathered(line, slices(at, d, shape), throw_bad_index<kIndexSelect>)
      .view(x.ndim() == 0 ? Shape{} : shape);
}

Tensor take(const Tensor& x, const Tensor& index) {
  check_index(kTake, x, index);
  const Tensor flat = contiguous(x).view({x.numel()});
  const Tensor out = gathered(
      flat, {.dim = 0, .index = contiguous(index).view({index.numel()}), .from_back = true},
      throw_bad_signed_index<kTake>);
  return out.view(index.shape());
}

Tensor index(const Tensor& x, const std::vector<Tensor>& given) {
  const std::vector<Tensor> indices = composed::without_masks(kIndex, x, given);
  const LeadingIndex chosen = leading_index(kIndex, x, indices, throw_bad_signed_index<kIndex>);
  const Tensor rows = indices.size() == 1 ? x : contiguous(x).view(chosen.rows);
  const Shape shape = chosen.rows.with(0, chosen.index.dim(0));
  return gathered(rows, slices(chosen.index, 0, shape), throw_bad_index<kIndex>)
      .view(with_rows(chosen.shape, chosen.rows));
}

namespace {

// Writes to `out`, whose leading dims can be merged without a copy.
void put_values(const char* where, const Tensor& out, const std::vector<Tensor>& given,
                const Tensor& values, const IndexPutOptions& options) {
  ops::check_operands(where, out, values);
  if (options.accumulate) check_addable(where, out);
  const LeadingIndex chosen = leading_index(where, out, composed::without_masks(where, out, given),
                                            throw_bad_signed_index<kIndexPut>);
  const Shape shape = with_rows(chosen.shape, chosen.rows);
  TESSERA_CHECK(broadcast_shapes(values.shape(), shape, where) == shape, where,
                "the values have shape {}, which does not broadcast to {}", values.shape().str(),
                shape.str());
  const Shape rows = chosen.rows.with(0, chosen.index.dim(0));
  const Tensor src = contiguous(away_from(out, values).expand(shape)).view(rows);
  const Put how{.where = where, .bad_index = throw_bad_index<kIndexPut>};
  const Chosen places = slices(chosen.index, 0, rows);
  options.accumulate ? add_into(out.view(chosen.rows), places, src, how)
                     : put(out.view(chosen.rows), places, src, how);
}

}  // namespace

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 const IndexPutOptions& options) {
  ops::check_defined(kIndexPut, "the first operand", x);
  const Tensor out = clone(x);
  put_values(kIndexPut, out, indices, values, options);
  return out;
}

void index_put_(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                const IndexPutOptions& options) {
  ops::check_defined(kIndexPutInPlace, "the first operand", x);
  ops::check_writable(kIndexPutInPlace, x);
  if (x.is_contiguous()) return put_values(kIndexPutInPlace, x, indices, values, options);
  const Tensor out = contiguous(x);
  put_values(kIndexPutInPlace, out, indices, values, options);
  copy_(x, out);
}

}  // namespace tessera
