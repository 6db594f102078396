#include "tessera/autograd/ops/nn.h"

#include <cstddef>
#include <limits>
#include <optional>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera {

Variable softmax(const Variable& x, int dim) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("softmax"), [&](auto&... v) { return softmax(v..., dim); }, x);
  const Tensor y = softmax(x.tensor(), dim);
  return record_twice(
      "softmax", y, {x},
      [y = SavedTensor(y, "softmax"), dim](const Variable& dy, const BackwardContext& context) {
        if (!context.create_graph())
          return Gradients{Variable(softmax_backward(dy.tensor(), y.unpack(), dim))};
        const Variable kept = context.output(0, y.unpack());
        return Gradients{mul(kept, sub(dy, sum(mul(dy, kept), {dim}, true)))};
      });
}

Variable log_softmax(const Variable& x, int dim) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("log_softmax"), [&](auto&... v) { return log_softmax(v..., dim); }, x);
  const Tensor y = log_softmax(x.tensor(), dim);
  return record_twice(
      "log_softmax", y, {x},
      [y = SavedTensor(y, "log_softmax"), dim](const Variable& dy, const BackwardContext& context) {
        if (!context.create_graph())
          return Gradients{Variable(log_softmax_backward(dy.tensor(), y.unpack(), dim))};
        const Variable p = exp(context.output(0, y.unpack()));
        return Gradients{sub(dy, mul(p, sum(dy, {dim}, true)))};
      });
}

Variable softmax(const Variable& x, int dim, DType dtype) {
  return detail::in_dtype(x, dtype, [dim](const Variable& v) { return softmax(v, dim); });
}

Variable log_softmax(const Variable& x, int dim, DType dtype) {
  return detail::in_dtype(x, dtype, [dim](const Variable& v) { return log_softmax(v, dim); });
}

namespace {

struct SavedCrossEntropy {
  SavedVariable logits;
  SavedTensor targets;
  SavedTensor log_sum_exp;
  Tensor total_weight;  // undefined but for kMean
  CrossEntropyOptions options;

  // The gradient of each row's loss from that of the reduced one.
  Variable row_gradient(const Variable& dy) const {
    const Tensor& like = log_sum_exp.unpack();
    const Variable own = cast(dy, like.dtype());
    switch (options.reduction) {
      case LossReduction::kNone:
        return own;
      case LossReduction::kSum:
        return expand(own, like.shape());
      case LossReduction::kMean:
        return expand(div(own, Variable(total_weight)), like.shape());
    }
    return own;
  }

  // A row's gradient is p * a - k, where k does not depend on the logits and a is its sum.
  Gradients differentiable(const Variable& dy) const {
    const Variable& x = logits.unpack();
    const Tensor& like = log_sum_exp.unpack();
    // With an infinite sum of exponentials p is 0, and what is left is -k.
    const Tensor infinite =
        full(like.shape(), std::numeric_limits<double>::infinity(), like.options());
    const Tensor k = neg(cross_entropy_rows_backward(
        full(like.shape(), 1, like.options()), x.tensor(), targets.unpack(), infinite, options));
    const Variable a(sum(k, {-1}, true));
    const Variable rows = reshape(cast(row_gradient(dy), x.dtype()), a.shape());
    return {mul(sub(mul(softmax(x), a), Variable(k)), rows)};
  }

  Gradients direct(const Variable& dy, const BackwardContext& context) const {
    const Tensor rows = row_gradient(dy).tensor();
    const Tensor& x = logits.unpack().tensor();
    if (!detail::gives_memory(logits, context, {RowPitch::kPacked, RowPitch::kAligned}))
      return {Variable(
          cross_entropy_rows_backward(rows, x, targets.unpack(), log_sum_exp.unpack(), options))};
    cross_entropy_rows_backward_(x, rows, targets.unpack(), log_sum_exp.unpack(), options);
    return {Variable(x)};
  }
};

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("cross_entropy"),
        [&](auto& x) { return cross_entropy(x, targets, options); }, logits);
  const CrossEntropyResult rows = cross_entropy_rows(logits.tensor(), targets, options);
  const ReducedLoss reduced = reduce_loss(rows, options.reduction);
  return record_twice(
      "cross_entropy", reduced.loss, {logits},
      [saved = SavedCrossEntropy{.logits = SavedVariable(logits, "cross_entropy"),
                                 .targets = SavedTensor(targets, "cross_entropy"),
                                 .log_sum_exp = SavedTensor(rows.log_sum_exp, "cross_entropy"),
                                 .total_weight = reduced.total_weight,
                                 .options = options}](const Variable& dy,
                                                      const BackwardContext& context) {
        return context.create_graph() ? saved.differentiable(dy) : saved.direct(dy, context);
      });
}

Variable cross_entropy(const Variable& logits, const Tensor& targets, LossReduction reduction) {
  return cross_entropy(logits, targets, {.reduction = reduction});
}

// A rotation: its derivative turns back.
Variable rotary(const Variable& x, const RotaryTable& table, const RotaryOptions& options) {
  return record_twice(
      "rotary", rotary(x.tensor(), table, options), {x},
      [cos = SavedTensor(table.cos, "rotary"), sin = SavedTensor(table.sin, "rotary"), options](
          const Variable& dy, const BackwardContext&) {
        const RotaryOptions back{.pairing = options.pairing, .inverse = !options.inverse};
        return Gradients{rotary(dy, {.cos = cos.unpack(), .sin = sin.unpack()}, back)};
      });
}

}  // namespace tessera
