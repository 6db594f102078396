#include "tessera/tensor/ops/mask.h"

#include <algorithm>

#include "tessera/tensor/kernels/fill.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/composed/masks.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/elementwise_launch.h"
#include "tessera/tensor/ops/internal/indexed.h"
#include "tessera/tensor/ops/internal/overlap.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera {
namespace {

Tensor launch_nonzero(const Tensor& x, const Tensor& out, std::int64_t fill = -1) {
  launch<NonzeroKernel>(x.device(), {.x = read(x), .y = write(out), .fill = fill});
  return out;
}

TensorOptions positions_on(const Tensor& x) { return {.dtype = DType::kI64, .device = x.device()}; }

std::int64_t count_nonzero(const char* where, const Tensor& x) {
  ops::check_defined(where, "the tensor", x);
  TESSERA_CHECK_AS(
      StateError, !x.device().is_null(), where,
      "the number of elements that are set depends on values, and tensors on the null "
      "device have none; use nonzero_static with a size, and its positions as indices");
  return sum(x.dtype() == DType::kBool ? x : ne(x, 0)).item<std::int64_t>();
}

// [dims, count]: the positions along each dim are contiguous.
Tensor positions_by_dim(const char* where, const Tensor& x) {
  const std::int64_t count = count_nonzero(where, x);
  const Tensor out = Tensor::empty({x.ndim(), count}, positions_on(x));
  launch_nonzero(x, out.transpose(0, 1));
  return out;
}

void fill_masked(const char* where, const Tensor& out, const Tensor& x, const Tensor& mask,
                 double value) {
  Tensor copy;
  MaskedFillKernel::Args args{.x = read(x.expand(out.shape())),
                              .mask = read(ops::apart(mask.expand(out.shape()), out, copy)),
                              .y = overwrite(out, where),
                              .value = value};
  sort_and_merge_dims(args.y.shape, {&args.y.strides, &args.x.strides, &args.mask.strides});
  args.x.shape = args.mask.shape = args.y.shape;
  launch<MaskedFillKernel>(out.device(), args);
}

// `shape`: of `out`, to which x and mask broadcast.
void scatter_masked(const char* where, const Tensor& out, const Tensor& x, const Tensor& mask,
                    const Tensor& source) {
  const Tensor places = composed::source_places(where, mask, source, out.shape());
  const Tensor given = reshape(source, {source.numel()});
  Tensor mask_copy, source_copy;
  MaskedScatterKernel::Args args{.x = read(x.expand(out.shape())),
                                 .mask = read(ops::apart(mask.expand(out.shape()), out, mask_copy)),
                                 .places = read(places.view(out.shape())),
                                 .source = read(contiguous(ops::apart(given, out, source_copy))),
                                 .y = overwrite(out, where)};
  sort_and_merge_dims(args.y.shape,
                      {&args.y.strides, &args.x.strides, &args.mask.strides, &args.places.strides});
  args.x.shape = args.mask.shape = args.places.shape = args.y.shape;
  launch<MaskedScatterKernel>(out.device(), args);
}

// Checks an operation with a mask that writes to x.
void check_written(const char* where, const Tensor& x, const Tensor& mask, bool or_u8) {
  ops::check_defined(where, "the tensor", x);
  composed::check_mask(where, x, mask, or_u8);
  TESSERA_CHECK(broadcast_shapes(mask.shape(), x.shape(), where) == x.shape(), where,
                "the mask has shape {}, which does not broadcast to {}", mask.shape().str(),
                x.shape().str());
  ops::check_writable(where, x);
}

constexpr const char* kMaskedScatter = "masked_scatter";
constexpr const char* kMaskedScatterInPlace = "masked_scatter_";

// Place 0 stands before the source's elements.
template <const char* const& where>
[[noreturn]] void throw_short_source(std::int64_t, std::int64_t, std::int64_t extent, int) {
  const std::int64_t count = extent - 1;
  TESSERA_CHECK(count > 0, where,
                "elements of the mask are set, and the source has none; give one for each");
  throw_error<InvalidArgument>(
      where, "more than {} elements of the mask are set, and the source has {}; give one for each",
      count, count);
}

}  // namespace

namespace composed {

void check_mask(const char* where, const Tensor& x, const Tensor& mask, bool or_u8) {
  ops::check_defined(where, "the tensor", x);
  ops::check_defined(where, "the mask", mask);
  ops::check_same_device(where, x, mask);
  TESSERA_CHECK(mask.dtype() == DType::kBool || (or_u8 && mask.dtype() == DType::kU8), where,
                "the mask has dtype {}; it must be bool{}", dtype_name(mask.dtype()),
                or_u8 ? " or u8" : "");
}

void check_fill_value(const char* where, const Tensor& x, const Tensor& value) {
  ops::check_value(where, x, value);
}

std::vector<Tensor> without_masks(const char* where, const Tensor& x,
                                  const std::vector<Tensor>& indices) {
  ops::check_defined(where, "the tensor", x);
  std::vector<Tensor> out;
  for (const Tensor& index : indices) {
    if (!index.defined() || index.dtype() != DType::kBool) {
      out.push_back(index);
      continue;
    }
    ops::check_same_device(where, x, index);
    const int first = static_cast<int>(out.size());
    bool fits = index.ndim() >= 1 && first + index.ndim() <= x.ndim();
    for (int d = 0; fits && d < index.ndim(); ++d) fits = index.dim(d) == x.dim(first + d);
    TESSERA_CHECK(fits, where,
                  "a mask of shape {} stands for the dims of {} from dim {} on; give it their "
                  "extents",
                  index.shape().str(), x.shape().str(), first);
    for (const Tensor& positions : unbind(positions_by_dim(where, index))) out.push_back(positions);
  }
  return out;
}

Tensor selected_places(const Tensor&, const Tensor& mask, const Shape& shape) {
  const Tensor flat = contiguous(mask.expand(shape)).view({shape.numel()});
  return positions_by_dim("masked_select", flat).select(0, 0);
}

Tensor source_places(const char* where, const Tensor& mask, const Tensor& source,
                     const Shape& shape) {
  const Tensor places = cumsum(contiguous(mask.expand(shape)).view({shape.numel()}), 0);
  const std::int64_t n = places.numel(), last = std::max<std::int64_t>(0, n - 1);
  // They ascend, so the last is the only one to check. The check's result is of no use.
  const Tensor checked = places.slice(0, last, n);
  const Tensor out = Tensor::empty(checked.shape(), places.options());
  LinearIndexKernel::Args args{.indices = {},
                               .extents = {source.numel() + 1},
                               .y = write(out),
                               .bad_index = where == kMaskedScatterInPlace
                                                ? throw_short_source<kMaskedScatterInPlace>
                                                : throw_short_source<kMaskedScatter>};
  args.indices[0] = read(checked);
  launch<LinearIndexKernel>(checked.device(), args);
  return places;
}

}  // namespace composed

Tensor nonzero(const Tensor& x) {
  const std::int64_t count = count_nonzero("nonzero", x);
  return launch_nonzero(x, Tensor::empty({count, x.ndim()}, positions_on(x)));
}

std::vector<Tensor> nonzero_as_tuple(const Tensor& x) {
  ops::check_defined("nonzero_as_tuple", "the tensor", x);
  return unbind(positions_by_dim("nonzero_as_tuple", x.ndim() == 0 ? x.unsqueeze(0) : x));
}

Tensor nonzero_static(const Tensor& x, std::int64_t size, std::int64_t fill_value) {
  ops::check_defined("nonzero_static", "the tensor", x);
  TESSERA_CHECK(size >= 0, "nonzero_static", "the size is {}; it must not be negative", size);
  return launch_nonzero(x, Tensor::empty({size, x.ndim()}, positions_on(x)), fill_value);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  return composed::masked_select(x, mask);
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  ops::check_operands(kMaskedScatter, x, source);
  composed::check_mask(kMaskedScatter, x, mask);
  const Tensor out =
      Tensor::empty(broadcast_shapes(x.shape(), mask.shape(), kMaskedScatter), x.options());
  scatter_masked(kMaskedScatter, out, x, mask, source);
  return out;
}

void masked_scatter_(const Tensor& x, const Tensor& mask, const Tensor& source) {
  constexpr const char* kWhere = kMaskedScatterInPlace;
  check_written(kWhere, x, mask, false);
  ops::check_operands(kWhere, x, source);
  scatter_masked(kWhere, x, x, mask, source);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  constexpr const char* kWhere = "masked_fill";
  composed::check_mask(kWhere, x, mask, true);
  ops::check_number(kWhere, x, value);
  const Tensor out = Tensor::empty(broadcast_shapes(x.shape(), mask.shape(), kWhere), x.options());
  fill_masked(kWhere, out, x, mask, value);
  return out;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  return composed::masked_fill(x, mask, value);
}

void masked_fill_(const Tensor& x, const Tensor& mask, double value) {
  constexpr const char* kWhere = "masked_fill_";
  check_written(kWhere, x, mask, true);
  ops::check_number(kWhere, x, value);
  fill_masked(kWhere, x, x, mask, value);
}

void masked_fill_(const Tensor& x, const Tensor& mask, const Tensor& value) {
  constexpr const char* kWhere = "masked_fill_";
  check_written(kWhere, x, mask, true);
  composed::check_fill_value(kWhere, x, value);
  copy_(x, where(mask, cast(value, x.dtype()), x));
  x.set_last_writer(kWhere);
}

}  // namespace tessera
