/// Operations whose indices name whole slices of a dim.

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

using ops::as_line;
using ops::Chosen;
using ops::throw_bad_index;
using ops::throw_bad_signed_index;

constexpr const char* kIndexAdd = "index_add";
constexpr const char* kIndexAddInPlace = "index_add_";
constexpr const char* kIndexCopy = "index_copy";
constexpr const char* kIndexCopyInPlace = "index_copy_";
constexpr const char* kIndexFill = "index_fill";
constexpr const char* kIndexFillInPlace = "index_fill_";

// The slices of `dim` that index [n], or 0-d, names. A 0-d operand counts as [1].
struct Slices {
  Chosen chosen;
  Shape shape;  // x's with n in `dim`
};

Slices slices_of(const char* where, const Tensor& x, int dim, const Tensor& index) {
  ops::check_index(where, x, index);
  const int d = ops::along_dim(where, x, dim);
  TESSERA_CHECK(index.ndim() <= 1, where, "needs an index of 1 dim, or of none, got shape {}",
                index.shape().str());
  const Tensor list = as_line(index);
  const Shape shape = as_line(x).shape().with(d, list.dim(0));
  return {.chosen = ops::slices(ops::away_from(x, list), d, shape), .shape = shape};
}

Slices slices_for(const char* where, const Tensor& x, int dim, const Tensor& index,
                  const Tensor& src) {
  Slices out = slices_of(where, x, dim, index);
  ops::check_operands(where, x, src);
  TESSERA_CHECK(as_line(src).shape() == out.shape, where,
                "the source has shape {}; for a tensor of shape {} and this index it must be {}",
                src.shape().str(), x.shape().str(), out.shape.str());
  return out;
}

// Integers stay integers; 16 bits become f32, in which they are summed.
Tensor times_alpha(const Tensor& src, double alpha) {
  if (alpha == 1) return src;
  if (!is_floating(src.dtype())) return mul(src, static_cast<std::int64_t>(alpha));
  const DType dtype = compute_dtype(src.dtype());
  return mul(dtype == src.dtype() ? src : cast(src, dtype), alpha);
}

template <const char* const& where>
void add_slices(const Tensor& out, const Slices& slices, const Tensor& src,
                const IndexAddOptions& options) {
  ops::check_addable(where, out);
  ops::check_number(where, out, options.alpha);
  const Tensor from = as_line(ops::away_from(out, src));
  ops::add_into(as_line(out), slices.chosen, times_alpha(from, options.alpha),
                {.where = where, .bad_index = throw_bad_index<where>});
}

template <const char* const& where>
void copy_slices(const Tensor& out, const Slices& slices, const Tensor& src) {
  ops::put(as_line(out), slices.chosen, as_line(ops::away_from(out, src)),
           {.where = where, .bad_index = throw_bad_index<where>});
}

template <const char* const& where>
void fill_slices(const Tensor& out, Slices slices, const Tensor& value) {
  slices.chosen.from_back = true;
  ops::put(as_line(out), slices.chosen, value.expand(slices.shape),
           {.where = where, .bad_index = throw_bad_signed_index<where>});
}

Tensor number_like(const char* where, const Tensor& x, double value) {
  ops::check_number(where, x, value);
  return full({}, value, x.options());
}

}  // namespace

Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                 const IndexAddOptions& options) {
  const Slices slices = slices_for(kIndexAdd, x, dim, index, src);
  const Tensor out = clone(x);
  add_slices<kIndexAdd>(out, slices, src, options);
  return out;
}

void index_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                const IndexAddOptions& options) {
  const Slices slices = slices_for(kIndexAddInPlace, x, dim, index, src);
  ops::check_writable(kIndexAddInPlace, x);
  add_slices<kIndexAddInPlace>(x, slices, src, options);
}

Tensor index_copy(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Slices slices = slices_for(kIndexCopy, x, dim, index, src);
  const Tensor out = clone(x);
  copy_slices<kIndexCopy>(out, slices, src);
  return out;
}

void index_copy_(const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  const Slices slices = slices_for(kIndexCopyInPlace, x, dim, index, src);
  ops::check_writable(kIndexCopyInPlace, x);
  copy_slices<kIndexCopyInPlace>(x, slices, src);
}

Tensor index_fill(const Tensor& x, int dim, const Tensor& index, double value) {
  const Slices slices = slices_of(kIndexFill, x, dim, index);
  const Tensor out = clone(x);
  fill_slices<kIndexFill>(out, slices, number_like(kIndexFill, x, value));
  return out;
}

Tensor index_fill(const Tensor& x, int dim, const Tensor& index, const Tensor& value) {
  const Slices slices = slices_of(kIndexFill, x, dim, index);
  ops::check_value(kIndexFill, x, value);
  const Tensor out = clone(x);
  fill_slices<kIndexFill>(out, slices, cast(value, x.dtype()));
  return out;
}

void index_fill_(const Tensor& x, int dim, const Tensor& index, double value) {
  const Slices slices = slices_of(kIndexFillInPlace, x, dim, index);
  ops::check_writable(kIndexFillInPlace, x);
  fill_slices<kIndexFillInPlace>(x, slices, number_like(kIndexFillInPlace, x, value));
}

}  // namespace tessera
