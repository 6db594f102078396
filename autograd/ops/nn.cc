#include "tessera/autograd/ops/nn.h"

#include <cstddef>
#include <limits>
#include <optional>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/streams/stream.h"

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

// Whether x [..., n] lies as a result of empty_rows does, and nothing else lies in its storage: what
// reads a gradient in its place chooses the same kernels as for a tensor of its own.
bool fills_storage(const Tensor& x) {
  const std::int64_t width = x.dim(-1), rows = width > 0 ? x.numel() / width : 0;
  const std::optional<Tensor> matrix = rows > 0 ? x.try_view({rows, width}) : std::nullopt;
  if (!matrix || x.offset() != 0 || (width > 1 && matrix->strides()[1] != 1)) return false;
  const auto lies = [&](RowPitch kind) {
    const std::int64_t pitch = pitch_of(width, kind, x.options());
    return (rows == 1 || matrix->strides()[0] == pitch) &&
           static_cast<std::size_t>(rows * pitch) * dtype_size(x.dtype()) == x.storage().bytes();
  };
  return lies(RowPitch::kPacked) || lies(RowPitch::kAligned);
}

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

  // Whether the gradient may take the logits' memory: this node releases them next, and has the
  // only handle.
  //
  // Threads: a count of one cannot grow behind our back, since handles are copied from handles, and
  // the one there is belongs to this node, which only the thread that recorded it uses. Streams:
  // when the last handle of a block goes, its stream hands it out again at once, so code that read
  // the logits on another stream made this one wait before it dropped its handle. Overwriting them
  // here is what the next owner of the block would do; hence only on the block's own stream,
  // and not where replays of a CUDA graph come back to it.
  bool gives_memory(const BackwardContext& context) const {
    if (!context.frees_saved() || !logits.is_sole_owner()) return false;
    const Tensor& x = logits.unpack().tensor();
    return fills_storage(x) && x.storage().belongs_to(current_stream(x.device()));
  }

  Gradients direct(const Variable& dy, const BackwardContext& context) const {
    const Tensor rows = row_gradient(dy).tensor();
    const Tensor& x = logits.unpack().tensor();
    if (!gives_memory(context))
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
