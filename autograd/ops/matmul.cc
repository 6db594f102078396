#include "tessera/autograd/ops/matmul.h"

#include <optional>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {
namespace {

using detail::autocast;
using detail::autocast_of;
using detail::autocasting;
using detail::save_if;

Tensor transposed(const Tensor& x) { return x.transpose(-1, -2); }
Variable transposed(const Variable& x) { return transpose(x, -1, -2); }

// The slot of input `i` for the result of a product of `dtype`. Sums of 16-bit operands are f32
// before they are rounded.
std::optional<GradientSlot> slot_for_product(int i, DType dtype, const BackwardContext& context) {
  std::optional<GradientSlot> slot = context.slot(i, dtype);
  const bool is_wider = dtype == DType::kBF16 || dtype == DType::kF16;
  return !slot && is_wider ? context.slot(i, DType::kF32) : slot;
}

// [..., n] as [rows, n].
Shape flat_shape(const Shape& shape) {
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < shape.ndim(); ++dim) rows *= shape[dim];
  return {rows, shape.back()};
}

Tensor flat(const Tensor& x) { return reshape(x, flat_shape(x.shape())); }
Variable flat(const Variable& x) { return reshape(x, flat_shape(x.shape())); }

// The gradient a b of input `i`, of `shape`: written into the leaf's slot where there is one.
Variable product(int i, const Tensor& a, const Tensor& b, const Shape& shape,
                 const BackwardContext& context) {
  const Shape whole =
      broadcast_shapes(a.shape().with(a.ndim() - 1, 1), b.shape().with(b.ndim() - 2, 1), "matmul");
  if (whole != shape) return Variable(sum_to_shape(matmul(a, b), shape));
  if (const std::optional<GradientSlot> slot = slot_for_product(i, a.dtype(), context)) {
    matmul_into(slot->tensor, a, b, {.alpha = 1, .beta = slot->beta});
    return {};
  }
  return Variable(matmul(a, b));
}

// The gradient of a bias: the rows of dy summed.
Variable row_sum(int i, const Tensor& dy, const BackwardContext& context) {
  const std::optional<GradientSlot> slot = slot_for_product(i, dy.dtype(), context);
  if (!slot) return Variable(sum(dy, {0}));
  if (slot->tensor.dtype() == dy.dtype()) {
    axpby_(slot->tensor, sum(dy, {0}), {.alpha = 1, .beta = slot->beta});
  } else {
    sum_rows_(slot->tensor, dy, slot->beta);
  }
  return {};
}

// The derivative of a product of operands with at least 2 dims each.
struct SavedFactors {
  SavedVariable a;
  SavedVariable b;
  Shape a_shape;
  Shape b_shape;

  // As variables, for create_graph.
  Gradients differentiable(const Variable& dy, const BackwardContext& context) const {
    Gradients gradients(2);
    if (context.needs(0)) gradients[0] = sum_to_shape(matmul(dy, transposed(b.unpack())), a_shape);
    if (context.needs(1)) gradients[1] = sum_to_shape(matmul(transposed(a.unpack()), dy), b_shape);
    return gradients;
  }

  // The usual case: kernels write straight into the slots.
  Gradients direct(const Tensor& dy, const BackwardContext& context) const {
    Gradients gradients(2);
    if (context.needs(0))
      gradients[0] = product(0, dy, transposed(b.unpack().tensor()), a_shape, context);
    if (!context.needs(1)) return gradients;
    const Tensor& left = a.unpack().tensor();
    const bool one_b = b_shape.ndim() == 2 &&
                       left.shape().without(left.ndim() - 1) == dy.shape().without(dy.ndim() - 1);
    // Where b is one matrix, its gradient is one product over all rows.
    gradients[1] = one_b ? product(1, transposed(flat(left)), flat(dy), b_shape, context)
                         : product(1, transposed(left), dy, b_shape, context);
    return gradients;
  }
};

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  if (autocasting())
    return autocast(
        autocast_of("matmul"), [](auto&... v) { return matmul(v...); }, a, b);
  // A vector is a row on the left and a column on the right.
  if (b.ndim() == 1 && a.ndim() > 0) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  if (a.ndim() == 1 && b.ndim() > 1) return squeeze(matmul(unsqueeze(a, 0), b), -2);
  const Tensor out = matmul(a.tensor(), b.tensor());
  return record_twice("matmul", out, {a, b},
                      [saved = SavedFactors{.a = save_if(b.requires_grad(), a, "matmul"),
                                            .b = save_if(a.requires_grad(), b, "matmul"),
                                            .a_shape = a.shape(),
                                            .b_shape = b.shape()}](const Variable& dy,
                                                                   const BackwardContext& context) {
                        return context.create_graph() ? saved.differentiable(dy, context)
                                                      : saved.direct(dy.tensor(), context);
                      });
}

namespace {

struct SavedLinear {
  SavedVariable x;
  SavedVariable weight;

  // The derivative as variables, for create_graph.
  Gradients differentiable(const Variable& dy, const BackwardContext& context) const {
    Gradients gradients(3);
    const Variable dy2 = flat(dy);
    if (context.needs(0)) {
      const Variable& w = weight.unpack();
      gradients[0] = reshape(matmul(dy2, w), dy.shape().with(dy.ndim() - 1, w.dim(1)));
    }
    if (context.needs(1)) gradients[1] = matmul(transposed(dy2), flat(x.unpack()));
    if (context.needs(2)) gradients[2] = sum(dy2, {0});
    return gradients;
  }

  // The usual case: kernels write straight into the slots of weight and bias. The weight's comes first: where x was computed
  // again, it is gone before its gradient, which is as large, is made.
  Gradients direct(const Tensor& dy, const BackwardContext& context) const {
    Gradients gradients(3);
    const Tensor dy2 = flat(dy);
    // Before a gradient is written: unpack() may throw.
    const Tensor w = context.needs(0) ? weight.unpack().tensor() : Tensor();
    if (context.needs(1)) {
      gradients[1] = weight_gradient(dy2, flat(x.unpack().tensor()), context);
      if (context.frees_saved()) x.free_recomputed();
    }
    if (context.needs(2)) gradients[2] = row_sum(2, dy2, context);
    if (context.needs(0)) {
      const Tensor dx = matmul(dy2, w);
      gradients[0] = Variable(dx.view(dy.shape().with(dy.ndim() - 1, w.dim(1))));
    }
    return gradients;
  }

 private:
  static Variable weight_gradient(const Tensor& dy2, const Tensor& input,
                                  const BackwardContext& context) {
    return product(1, transposed(dy2), input, {dy2.dim(1), input.dim(1)}, context);
  }
};

// The node of a linear layer, with its value.
Variable record_linear(const Tensor& value, const Variable& x, const Variable& weight,
                       const Variable& bias) {
  return record_twice("linear", value, {x, weight, bias},
                      [saved = SavedLinear{.x = save_if(weight.requires_grad(), x, "linear"),
                                           .weight = save_if(x.requires_grad(), weight, "linear")}](
                          const Variable& dy, const BackwardContext& context) {
                        return context.create_graph() ? saved.differentiable(dy, context)
                                                      : saved.direct(dy.tensor(), context);
                      });
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                ActivationKind activation, RowPitch pitch) {
  if (autocasting())
    return autocast(
        autocast_of("linear"), [&](auto&... v) { return linear(v..., activation, pitch); }, x,
        weight, bias);
  const Tensor bias_tensor = bias.defined() ? bias.tensor() : Tensor();
  const VariableRef inputs[] = {x, weight, bias};
  // The derivative of relu reads its result and not its operand: the result is saved in the
  // operand's place.
  if (activation == ActivationKind::kNone || activation == ActivationKind::kRelu ||
      !detail::is_recording(std::span<const VariableRef>(inputs))) {
    const Tensor y = linear(x.tensor(), weight.tensor(), bias_tensor, activation, pitch);
    const Variable before = record_linear(y, x, weight, bias);
    return before.requires_grad() ? detail::activated(activation, before, y) : before;
  }
  const ActivatedLinear out =
      linear_and_before(x.tensor(), weight.tensor(), bias_tensor, activation, pitch);
  return detail::activated(activation, record_linear(out.before, x, weight, bias), out.result);
}

Variable bmm(const Variable& a, const Variable& b) {
  if (autocasting())
    return autocast(
        autocast_of("bmm"), [](auto&... v) { return bmm(v...); }, a, b);
  const Tensor out = bmm(a.tensor(), b.tensor());
  return record_twice("bmm", out, {a, b},
                      [saved = SavedFactors{.a = save_if(b.requires_grad(), a, "bmm"),
                                            .b = save_if(a.requires_grad(), b, "bmm"),
                                            .a_shape = a.shape(),
                                            .b_shape = b.shape()}](const Variable& dy,
                                                                   const BackwardContext& context) {
                        return context.create_graph() ? saved.differentiable(dy, context)
                                                      : saved.direct(dy.tensor(), context);
                      });
}

namespace {

// The node of addmm or baddbmm, `name`, with its value.
Variable record_added_product(const char* name, const Tensor& out, const Variable& c,
                              const Variable& a, const Variable& b, const AddmmOptions& options) {
  return record_twice(
      name, out, {c, a, b},
      [a = save_if(b.requires_grad(), a, name), b = save_if(a.requires_grad(), b, name), options,
       shape = c.shape()](const Variable& dy, const BackwardContext& context) {
        Gradients gradients(3);
        if (context.needs(0)) gradients[0] = mul(sum_to_shape(dy, shape), options.beta);
        if (context.needs(1)) gradients[1] = mul(matmul(dy, transposed(b.unpack())), options.alpha);
        if (context.needs(2)) gradients[2] = mul(matmul(transposed(a.unpack()), dy), options.alpha);
        return gradients;
      });
}

}  // namespace

Variable addmm(const Variable& c, const Variable& a, const Variable& b,
               const AddmmOptions& options) {
  if (autocasting())
    return autocast(
        autocast_of("addmm"), [&](auto&... v) { return addmm(v..., options); }, c, a, b);
  const Tensor out = addmm(c.tensor(), a.tensor(), b.tensor(), options);
  return record_added_product("addmm", out, c, a, b, options);
}

Variable baddbmm(const Variable& c, const Variable& a, const Variable& b,
                 const AddmmOptions& options) {
  if (autocasting())
    return autocast(
        autocast_of("baddbmm"), [&](auto&... v) { return baddbmm(v..., options); }, c, a, b);
  const Tensor out = baddbmm(c.tensor(), a.tensor(), b.tensor(), options);
  return record_added_product("baddbmm", out, c, a, b, options);
}

Variable mv(const Variable& a, const Variable& x) {
  if (autocasting())
    return autocast(
        autocast_of("mv"), [](auto&... v) { return mv(v...); }, a, x);
  const Tensor out = mv(a.tensor(), x.tensor());
  return record_twice(
      "mv", out, {a, x},
      [a = save_if(x.requires_grad(), a, "mv"), x = save_if(a.requires_grad(), x, "mv")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = outer(dy, x.unpack());
        if (context.needs(1)) gradients[1] = mv(transposed(a.unpack()), dy);
        return gradients;
      });
}

Variable dot(const Variable& a, const Variable& b) {
  if (autocasting())
    return autocast(
        autocast_of("dot"), [](auto&... v) { return dot(v...); }, a, b);
  const Tensor out = dot(a.tensor(), b.tensor());
  return record_twice(
      "dot", out, {a, b},
      [a = save_if(b.requires_grad(), a, "dot"), b = save_if(a.requires_grad(), b, "dot")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = mul(dy, b.unpack());
        if (context.needs(1)) gradients[1] = mul(dy, a.unpack());
        return gradients;
      });
}

Variable outer(const Variable& a, const Variable& b) {
  const Tensor out = outer(a.tensor(), b.tensor());
  return record_twice(
      "outer", out, {a, b},
      [a = save_if(b.requires_grad(), a, "outer"), b = save_if(a.requires_grad(), b, "outer")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.needs(0)) gradients[0] = mv(dy, b.unpack());
        if (context.needs(1)) gradients[1] = mv(transposed(dy), a.unpack());
        return gradients;
      });
}

}  // namespace tessera
