#include "tessera/tensor/ops/internal/elementwise_launch.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "tessera/tensor/element_overlap.h"
#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/internal/overlap.h"

namespace tessera::ops {
namespace {

// bool < integer < floating.
int rank_of(DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::kBool ? 0 : 1; }

template <std::size_t N>
using Operands = std::array<const TensorOrNumber*, N>;

constexpr std::array<const char*, 3> kNames = {"the first operand", "the second operand",
                                               "the third operand"};

// Device and shape of the result, determined by the operands alone.
struct Place {
  Shape shape;
  Device device;
};

template <std::size_t N>
Place place_of(const char* where, const Operands<N>& operands) {
  const Tensor* first = nullptr;
  Place place;
  for (std::size_t i = 0; i < N; ++i) {
    if (!operands[i]->is_tensor()) continue;
    const Tensor& x = operands[i]->tensor();
    check_defined(where, N == 1 ? "the tensor" : kNames[i], x);
    if (first == nullptr) {
      place = {x.shape(), x.device()};
    } else {
      check_same_device(where, *first, x);
      if (!(place.shape == x.shape()))
        place.shape = broadcast_shapes(place.shape, x.shape(), where);
    }
    first = first == nullptr ? &x : first;
  }
  TESSERA_CHECK(first != nullptr, where, "needs at least one tensor, got numbers only");
  return place;
}

// A number must be representable in the compute type.
void check_number(const char* where, double number, DType compute) {
  TESSERA_CHECK(
      is_floating(compute) || (number == std::trunc(number) && std::abs(number) <= 0x1p53), where,
      "the number {} is not a whole number up to 2^53, which {} is computed with; cast to "
      "a floating dtype first",
      number, dtype_name(compute));
}

// An operand as the kernel takes it, with the shape of `out`. `copy` keeps a copied operand until
// the launch: if its block were returned earlier, the next operand's copy could reuse it.
Operand resolve(const char* where, const TensorOrNumber& operand, DType compute, const Tensor& out,
                Tensor& copy) {
  if (!operand.is_tensor()) {
    check_number(where, operand.number(), compute);
    return operand.number();
  }
  const Shape& shape = out.shape();
  ConstView view = read(apart(operand.tensor(), out, copy));
  if (view.shape == shape) return view;
  Shape strides = Shape::filled(shape.ndim(), 0);
  const int lead = shape.ndim() - view.shape.ndim();
  for (int d = 0; d < view.shape.ndim(); ++d) {
    if (view.shape[d] != 1) strides[lead + d] = view.strides[d];
  }
  view.shape = shape;
  view.strides = strides;
  return view;
}

// Merges dims as far as all arrays of one shape allow; numbers allow everything.
template <std::size_t N>
void settle(View& y, const std::array<Operand*, N>& operands) {
  bool in_order = is_contiguous(y.shape, y.strides);
  for (Operand* operand : operands) {
    in_order = in_order &&
               (operand->is_number() || is_contiguous(operand->view.shape, operand->view.strides));
  }
  Shape unused = y.strides;
  std::array<Shape*, 3> strides;
  strides.fill(&unused);
  for (std::size_t i = 0; i < N; ++i) {
    if (!operands[i]->is_number()) strides[i] = &operands[i]->view.strides;
  }
  if (in_order) {  // the usual case: no sorting needed
    if (y.shape.ndim() == 1) return;
    static const Shape one = {1};  // copies of a list just made would wait for its bytes
    y.shape = {y.shape.numel()};
    for (Shape* s : strides) *s = one;
    y.strides = one;
  } else {
    sort_and_merge_dims(y.shape, {&y.strides, strides[0], strides[1], strides[2]});
  }
  for (Operand* operand : operands) operand->view.shape = y.shape;
}

// The result's tensor: `out` after checking that it fits, or a new tensor.
Tensor destination(const char* where, const Tensor* out, const Place& place, DType dtype) {
  if (out == nullptr) return Tensor::empty(place.shape, {.dtype = dtype, .device = place.device});
  TESSERA_CHECK(out->shape() == place.shape, where,
                "the result has shape {} and cannot be written into shape {}; use the form that "
                "makes a new tensor",
                place.shape.str(), out->shape().str());
  TESSERA_CHECK(rank_of(dtype) <= rank_of(out->dtype()), where,
                "the result is {} and cannot be written into {}; cast the tensor first",
                dtype_name(dtype), dtype_name(out->dtype()));
  check_writable(where, *out);
  return *out;
}

DType kind_of(ResultKind kind, DType common) {
  if (kind == ResultKind::kBool) return DType::kBool;
  if (kind == ResultKind::kNumber && common == DType::kBool) return DType::kI64;
  return kind == ResultKind::kFloating && !is_floating(common) ? DType::kF32 : common;
}

// The type in which values of this dtype are computed.
DType compute_of(DType dtype) { return is_floating(dtype) ? compute_dtype(dtype) : DType::kI64; }

View written(const char* where, const Tensor& y, const Tensor* out) {
  return out != nullptr ? overwrite(y, where) : write(y);
}

}  // namespace

void check_integers(const char* where, std::initializer_list<TensorOrNumber> operands) {
  std::size_t i = 0;
  for (const TensorOrNumber& x : operands) {
    if (x.is_tensor())
      check_defined(where, operands.size() == 1 ? "the tensor" : kNames[i], x.tensor());
    ++i;
  }
  const DType dtype = result_dtype(operands);
  TESSERA_CHECK(!is_floating(dtype), where, "needs integers or bool, got {}; cast it first",
                dtype_name(dtype));
}

void check_writable(const char* where, const Tensor& out) {
  if (!elements_overlap(out.shape(), out.strides())) return;
  for (int d = 0; d < out.ndim(); ++d) {
    TESSERA_CHECK(out.strides()[d] != 0 || out.shape()[d] <= 1, where,
                  "dim {} of the tensor written to repeats one element {} times; clone() it first",
                  d, out.shape()[d]);
  }
  throw_error<InvalidArgument>(where,
                               "elements of the tensor written to, of shape {} with strides {}, "
                               "share memory; clone() it first",
                               out.shape().str(), out.strides().str());
}

Tensor unary(const char* where, const Tensor& x, UnaryOp op, ResultKind kind, const Tensor* out) {
  const TensorOrNumber operand = x;
  const Place place = place_of<1>(where, {&operand});
  const DType dtype = kind_of(kind, x.dtype());
  const DType compute = compute_of(kind == ResultKind::kBool ? x.dtype() : dtype);
  const Tensor y = destination(where, out, place, dtype);
  Tensor copy;
  Operand from = resolve(where, operand, compute, y, copy);
  UnaryKernel::Args args = {.x = {}, .y = written(where, y, out), .op = op, .compute = compute};
  settle<1>(args.y, {&from});
  args.x = from.view;
  launch<UnaryKernel>(place.device, args);
  return y;
}

Tensor binary(const char* where, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op,
              ResultKind kind, const Tensor* out) {
  const Place place = place_of<2>(where, {&a, &b});
  const DType common = result_dtype({a, b});
  const DType dtype = kind_of(kind, common);
  const DType compute = op == BinaryOp::kPolygamma
                            ? DType::kF64
                            : compute_of(kind == ResultKind::kBool ? common : dtype);
  const Tensor y = destination(where, out, place, dtype);
  Tensor copies[2];
  BinaryKernel::Args args = {.a = resolve(where, a, compute, y, copies[0]),
                             .b = resolve(where, b, compute, y, copies[1]),
                             .y = written(where, y, out),
                             .op = op,
                             .compute = compute};
  settle<2>(args.y, {&args.a, &args.b});
  launch<BinaryKernel>(place.device, args);
  return y;
}

Tensor ternary(const char* where, const TernaryOperands& operands, TernaryOp op, const Tensor* out,
               double factor) {
  const auto& [a, b, c] = operands;
  const Place place = place_of<3>(where, {&a, &b, &c});
  const DType dtype = op == TernaryOp::kWhere ? result_dtype({b, c}) : result_dtype({a, b, c});
  const DType compute = compute_of(dtype);
  check_number(where, factor, compute);
  const Tensor y = destination(where, out, place, dtype);
  Tensor copies[3];
  TernaryKernel::Args args = {.a = resolve(where, a, compute, y, copies[0]),
                              .b = resolve(where, b, compute, y, copies[1]),
                              .c = resolve(where, c, compute, y, copies[2]),
                              .y = written(where, y, out),
                              .op = op,
                              .compute = compute,
                              .factor = factor};
  settle<3>(args.y, {&args.a, &args.b, &args.c});
  launch<TernaryKernel>(place.device, args);
  return y;
}

}  // namespace tessera::ops
