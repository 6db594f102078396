#include <cstddef>
#include <limits>
#include <memory>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/autocast_call.h"
#include "tessera/autograd/ops/class_parts.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/nn.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera {
namespace {

using Parts = std::shared_ptr<const ClassParts>;  // null: the logits have all classes

ClassPart part_of(const Parts& parts) { return parts == nullptr ? ClassPart{} : parts->part(); }

// The factor of log_sum_exp in a row's loss, of the terms of some classes.
class Coefficient {
 public:
  Coefficient(const CrossEntropyOptions& options, std::int64_t classes)
      : weight_(options.weight),
        smoothing_(options.label_smoothing),
        on_each_(options.label_smoothing / static_cast<double>(classes)) {}

  // Of the classes [first, first + count). `row_weight` is the target's, 0 if it is none of them.
  Tensor of(const Tensor& row_weight, std::int64_t first, std::int64_t count) const {
    if (smoothing_ == 0) return row_weight;
    const Tensor on_target = mul(row_weight, 1 - smoothing_);
    if (!weight_.defined()) return add(on_target, on_each_ * static_cast<double>(count));
    const Tensor sum_of_weights = sum(cast(weight_.narrow(0, first, count), row_weight.dtype()));
    return add(on_target, mul(sum_of_weights, on_each_));
  }

 private:
  const Tensor& weight_;
  double smoothing_;
  double on_each_;
};

// Tells the rows whose target is `index`, by numbers that f64 holds. Targets are classes or `index`.
Tensor ignored_rows(const Tensor& targets, std::int64_t index, std::int64_t classes) {
  if (index < 0) return lt(targets, 0);
  return index < classes ? eq(targets, index) : ge(targets, classes);
}

// The rows of all classes. With L the log-sum-exp of all and l that of a part, its terms of a row's loss are those that
// it computed with l, plus their coefficient times L - l. L is M, the largest l, rounded, and log_sum; l - M is formed from
// the largest logit, because l is rounded too, and large logits would lose small differences.
CrossEntropyResult over_parts(const CrossEntropyResult& mine, std::int64_t columns,
                              const Tensor& targets, const CrossEntropyOptions& options,
                              const ClassParts& parts) {
  const std::int64_t classes = parts.part().classes;
  const Coefficient coefficient(options, classes);
  const Tensor largest = add(mine.largest, mine.log_sum_exp);
  parts.take_largest(largest);
  const Tensor away = add(sub(mine.largest, largest), mine.log_sum_exp);
  const Tensor own = coefficient.of(mine.row_weight, parts.part().first, columns);
  // A part that has no number is infinitely far from M, which matters only where it has a coefficient.
  const Tensor moved = where(eq(own, 0), 0.0, mul(own, away));
  const Tensor sums = stack({exp(away), sub(mine.loss, moved), mine.row_weight});
  parts.all_reduce(sums);
  const Tensor log_sum = log(sums.select(0, 0)), row_weight = sums.select(0, 2);
  const Tensor loss = add(sums.select(0, 1), mul(coefficient.of(row_weight, 0, classes), log_sum));
  return {.loss = where(ignored_rows(targets, options.ignore_index, classes), 0.0, loss),
          .log_sum_exp = add(largest, log_sum),
          .row_weight = row_weight};
}

// p of this part's columns as a differentiable function of every part's.
Variable probabilities(const Variable& x, const Parts& parts) {
  if (parts == nullptr) return softmax(x);
  const Variable wide = cast(x, compute_dtype(x.dtype()));
  const Shape rows = x.shape().with(x.ndim() - 1, 1);
  const Tensor largest =
      x.dim(-1) > 0 ? clone(amax(wide.tensor(), {-1}, true))
                    : full(rows, -std::numeric_limits<double>::infinity(), wide.tensor().options());
  parts->take_largest(largest);
  const Variable exponentials = exp(sub(wide, Variable(largest)));
  return cast(div(exponentials, parts->all_reduce(sum(exponentials, {-1}, true))), x.dtype());
}

struct SavedCrossEntropy {
  SavedVariable logits;
  SavedTensor targets;
  SavedTensor log_sum_exp;
  Tensor total_weight;  // undefined but for kMean
  CrossEntropyOptions options;
  Parts parts;

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
    const Tensor k =
        neg(cross_entropy_rows_backward(full(like.shape(), 1, like.options()), x.tensor(),
                                        targets.unpack(), infinite, options, part_of(parts)));
    Tensor a = sum(k, {-1}, true);
    if (parts != nullptr) {
      const Tensor wide = cast(a, like.dtype());
      parts->all_reduce(wide);
      a = cast(wide, a.dtype());
    }
    const Variable of_each = parts == nullptr ? dy : parts->copy_to_parts(dy);
    const Variable rows = reshape(cast(row_gradient(of_each), x.dtype()), a.shape());
    return {mul(sub(mul(probabilities(x, parts), Variable(a)), Variable(k)), rows)};
  }

  Gradients direct(const Variable& dy, const BackwardContext& context) const {
    const Tensor rows = row_gradient(dy).tensor();
    const Tensor& x = logits.unpack().tensor();
    if (!detail::gives_memory(logits, context, {RowPitch::kPacked, RowPitch::kAligned}))
      return {Variable(cross_entropy_rows_backward(rows, x, targets.unpack(), log_sum_exp.unpack(),
                                                   options, part_of(parts)))};
    cross_entropy_rows_backward_(x, rows, targets.unpack(), log_sum_exp.unpack(), options,
                                 part_of(parts));
    return {Variable(x)};
  }
};

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options, const Parts& parts) {
  if (detail::autocasting())
    return detail::autocast(
        detail::autocast_of("cross_entropy"),
        [&](auto& x) { return cross_entropy(x, targets, options, parts); }, logits);
  CrossEntropyResult rows = cross_entropy_rows(logits.tensor(), targets, options, part_of(parts));
  if (parts != nullptr) rows = over_parts(rows, logits.dim(-1), targets, options, *parts);
  const ReducedLoss reduced = reduce_loss(rows, options.reduction);
  return record_twice(
      "cross_entropy", reduced.loss, {logits},
      [saved = SavedCrossEntropy{.logits = SavedVariable(logits, "cross_entropy"),
                                 .targets = SavedTensor(targets, "cross_entropy"),
                                 .log_sum_exp = SavedTensor(rows.log_sum_exp, "cross_entropy"),
                                 .total_weight = reduced.total_weight,
                                 .options = options,
                                 .parts = parts}](const Variable& dy,
                                                  const BackwardContext& context) {
        return context.create_graph() ? saved.differentiable(dy) : saved.direct(dy, context);
      });
}

Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options) {
  return cross_entropy(logits, targets, options, nullptr);
}

Variable cross_entropy(const Variable& logits, const Tensor& targets, LossReduction reduction) {
  return cross_entropy(logits, targets, {.reduction = reduction});
}

}  // namespace tessera
