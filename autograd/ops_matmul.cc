#include "tessera/tensor/ops_matmul.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops.h"
#include "tessera/autograd/ops_internal.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/ops_reduce.h"

namespace tessera {
namespace {

using detail::save_if;

// The gradient a b of input `i`: written into the leaf's slot where there is one.
Variable product(int i, const Tensor& a, const Tensor& b, const BackwardContext& context) {
  if (const std::optional<GradientSlot> slot = context.slot(i, a.dtype())) {
    matmul_into(slot->tensor, a, b, {.alpha = 1, .beta = slot->beta});
    return {};
  }
  return Variable(matmul(a, b));
}

// The gradient of a bias: the rows of dy summed.
Variable row_sum(int i, const Tensor& dy, const BackwardContext& context) {
  Tensor total = sum(dy, {0});
  if (const std::optional<GradientSlot> slot = context.slot(i, dy.dtype())) {
    axpby_(slot->tensor, total, {.alpha = 1, .beta = slot->beta});
    return {};
  }
  return Variable(std::move(total));
}

// [..., n] as [rows, n].
Shape flat_shape(const Shape& shape) {
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < shape.ndim(); ++dim) rows *= shape[dim];
  return {rows, shape.back()};
}

Tensor flat(const Tensor& x) {
  return x.ndim() == 2 ? x : contiguous(x).view(flat_shape(x.shape()));
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  return record_twice(
      "matmul", matmul(a.tensor(), b.tensor()), {a, b},
      [a = save_if(b.requires_grad(), a, "matmul"), b = save_if(a.requires_grad(), b, "matmul")](
          const Variable& dy, const BackwardContext& context) {
        Gradients gradients(2);
        if (context.create_graph()) {
          if (context.needs(0)) gradients[0] = matmul(dy, transpose(b.unpack(), 0, 1));
          if (context.needs(1)) gradients[1] = matmul(transpose(a.unpack(), 0, 1), dy);
          return gradients;
        }
        if (context.needs(0))
          gradients[0] = product(0, dy.tensor(), b.unpack().tensor().transpose(0, 1), context);
        if (context.needs(1))
          gradients[1] = product(1, a.unpack().tensor().transpose(0, 1), dy.tensor(), context);
        return gradients;
      });
}

namespace {

struct SavedLinear {
  SavedVariable x;
  SavedVariable weight;

  // The derivative as variables, for create_graph.
  Gradients differentiable(const Variable& dy, const BackwardContext& context) const {
    Gradients gradients(3);
    const Variable dy2 = reshape(dy, flat_shape(dy.shape()));
    if (context.needs(0)) {
      const Variable& w = weight.unpack();
      const Shape from = dy.shape().with(dy.ndim() - 1, w.dim(1));
      gradients[0] = reshape(matmul(dy2, w), from);
    }
    if (context.needs(1)) {
      const Variable& input = x.unpack();
      const Variable x2 = reshape(input, flat_shape(input.shape()));
      gradients[1] = matmul(transpose(dy2, 0, 1), x2);
    }
    if (context.needs(2)) gradients[2] = sum(dy2, {0});
    return gradients;
  }

  // The usual case: kernels write straight into the slots of weight and bias.
  Gradients direct(const Tensor& dy, const BackwardContext& context) const {
    Gradients gradients(3);
    const Tensor dy2 = flat(dy);
    if (context.needs(0)) {
      const Tensor& w = weight.unpack().tensor();
      const Tensor dx = matmul(dy2, w);
      gradients[0] = Variable(dx.view(dy.shape().with(dy.ndim() - 1, w.dim(1))));
    }
    if (context.needs(1))
      gradients[1] = product(1, dy2.transpose(0, 1), flat(x.unpack().tensor()), context);
    if (context.needs(2)) gradients[2] = row_sum(2, dy2, context);
    return gradients;
  }
};

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  const Tensor bias_tensor = bias.defined() ? bias.tensor() : Tensor();
  return record_twice("linear", linear(x.tensor(), weight.tensor(), bias_tensor), {x, weight, bias},
                      [saved = SavedLinear{.x = save_if(weight.requires_grad(), x, "linear"),
                                           .weight = save_if(x.requires_grad(), weight, "linear")}](
                          const Variable& dy, const BackwardContext& context) {
                        return context.create_graph() ? saved.differentiable(dy, context)
                                                      : saved.direct(dy.tensor(), context);
                      });
}

}  // namespace tessera
