#include "tessera/tensor/ops/internal/indexed.h"

#include <cmath>

#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/internal/overlap.h"

namespace tessera::ops {
namespace {

IndexedWalk walk_of(const Chosen& chosen, const Tensor& indexed, const Tensor& other) {
  const Shape* from[4] = {&chosen.index.shape(), &indexed.strides(), &chosen.index.strides(),
                          &other.strides()};
  IndexedWalk walk;
  walk.stride = indexed.strides()[chosen.dim];
  walk.extent = indexed.dim(chosen.dim);
  walk.least = chosen.from_back ? -walk.extent : 0;
  walk.named_dim = chosen.dim;
  Shape* to[4] = {&walk.shape, &walk.indexed, &walk.index, &walk.other};
  const auto append = [&](int begin, int end) {
    Shape lists[4];
    for (int d = begin; d < end; ++d) {
      for (int i = 0; i < 4; ++i) lists[i].push_back((*from[i])[d]);
    }
    merge_dims(lists[0], {&lists[1], &lists[2], &lists[3]});
    for (int i = 0; i < 4; ++i) {
      for (std::int64_t entry : lists[i]) to[i]->push_back(entry);
    }
  };
  append(0, chosen.dim);
  walk.dim = walk.shape.ndim();
  for (int i = 0; i < 4; ++i) to[i]->push_back((*from[i])[chosen.dim]);
  walk.indexed[walk.dim] = 0;
  append(chosen.dim + 1, chosen.index.ndim());
  return walk;
}

Tensor cast_to(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

}  // namespace

void check_index(const char* where, const Tensor& x, const Tensor& index) {
  check_defined(where, "the tensor", x);
  check_defined(where, "the index", index);
  check_same_device(where, x, index);
  TESSERA_CHECK(index.dtype() == DType::kI64 || index.dtype() == DType::kI32, where,
                "the index has dtype {}; it must be i64 or i32", dtype_name(index.dtype()));
}

void check_addable(const char* where, const Tensor& x) {
  TESSERA_CHECK(x.dtype() != DType::kBool, where, "bool values cannot be added; cast them first");
}

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

Chosen scattered(const char* where, const Tensor& x, int dim, const Tensor& index,
                 const Tensor& src) {
  check_index(where, x, index);
  const int d = along_dim(where, x, dim);
  check_extents(where, as_line(x), d, as_line(index));
  check_operands(where, x, src);
  const Shape needed = as_line(index).shape(), given = as_line(src).shape();
  bool fits = given.ndim() == needed.ndim();
  for (int i = 0; fits && i < given.ndim(); ++i) fits = needed[i] <= given[i];
  TESSERA_CHECK(fits, where, "the index has shape {} and the source {}; it must fit inside",
                index.shape().str(), src.shape().str());
  return {.dim = d, .index = away_from(x, as_line(index))};
}

void check_number(const char* where, const Tensor& x, double value) {
  TESSERA_CHECK(is_floating(x.dtype()) || (std::isfinite(value) && value == std::trunc(value)),
                where, "the number {} is not whole, and the tensor is {}; cast it first", value,
                dtype_name(x.dtype()));
}

void check_value(const char* where, const Tensor& x, const Tensor& value) {
  check_defined(where, "the value", value);
  check_same_device(where, x, value);
  TESSERA_CHECK(value.ndim() == 0, where,
                "the value has shape {}; it must be a number or a 0-d tensor", value.shape().str());
  TESSERA_CHECK(is_floating(x.dtype()) || !is_floating(value.dtype()), where,
                "the value is {}, and the tensor {}; cast one of them", dtype_name(value.dtype()),
                dtype_name(x.dtype()));
}

Tensor away_from(const Tensor& out, const Tensor& x) { return overlap(x, out) ? clone(x) : x; }

Chosen slices(const Tensor& index, int dim, const Shape& shape) {
  Tensor raised = index;
  for (int d = dim + 1; d < shape.ndim(); ++d) raised = raised.unsqueeze(-1);
  return {.dim = dim, .index = raised.expand(shape)};
}

Tensor gathered(const Tensor& x, const Chosen& chosen, BadIndex bad_index) {
  const Tensor out = Tensor::empty(chosen.index.shape(), x.options());
  launch<GatherKernel>(x.device(), {.x = read(x),
                                    .index = read(chosen.index),
                                    .y = write(out),
                                    .walk = walk_of(chosen, x, out),
                                    .bad_index = bad_index});
  return out;
}

void put(const Tensor& out, const Chosen& chosen, const Tensor& src, const Put& how) {
  launch<ScatterKernel>(out.device(), {.src = read(src),
                                       .index = read(chosen.index),
                                       .y = overwrite(out, how.where),
                                       .walk = walk_of(chosen, out, src),
                                       .mode = how.mode,
                                       .skip = how.skip,
                                       .bad_index = how.bad_index});
}

void fold_into(const Tensor& out, const Chosen& chosen, const Tensor& src, const Put& how) {
  // The CPU's kernel converts what it needs.
  if (!out.device().is_cuda() && is_floating(src.dtype()) && is_floating(out.dtype()))
    return put(out, chosen, src, how);
  if (dtype_size(out.dtype()) != 2) return put(out, chosen, cast_to(src, out.dtype()), how);
  const Tensor wide = cast(out, DType::kF32);
  put(wide, chosen, cast_to(src, DType::kF32), how);
  copy_(out, wide);
}

void add_into(const Tensor& out, const Chosen& chosen, const Tensor& src, Put how) {
  how.mode = ScatterMode::kAdd;
  fold_into(out, chosen, src, how);
}

}  // namespace tessera::ops
