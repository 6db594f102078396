#include "tessera/nn/training/loss.h"

#include <limits>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/training/global_mean.h"
#include "tessera/nn/training/loss_operands.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

// d^2 / 2 between -delta and delta, a straight line outside. Written with clamp, it has the right
// first and second derivatives everywhere but at +-delta, and none is NaN.
Variable parabola_and_lines(const LossOperands& x, double delta) {
  const Variable difference = sub(x.input, x.target);
  const Variable near = clamp(difference, -delta, delta);
  return mul(near, sub(difference, mul(near, 0.5)));
}

}  // namespace

Variable mse_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                  LossReduction reduction) {
  const LossOperands x = operands_of("nn.mse_loss", input, target);
  return x.reduced(square(sub(x.input, x.target)), reduction);
}

Variable l1_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                 LossReduction reduction) {
  const LossOperands x = operands_of("nn.l1_loss", input, target);
  return x.reduced(abs(sub(x.input, x.target)), reduction);
}

Variable huber_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                    const HuberLossOptions& options) {
  constexpr const char* kWhere = "nn.huber_loss";
  TESSERA_CHECK(options.delta > 0, kWhere, "delta is {}; it is above 0", options.delta);
  const LossOperands x = operands_of(kWhere, input, target);
  return x.reduced(parabola_and_lines(x, options.delta), options.reduction);
}

Variable smooth_l1_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                        const SmoothL1LossOptions& options) {
  constexpr const char* kWhere = "nn.smooth_l1_loss";
  TESSERA_CHECK(options.beta >= 0, kWhere, "beta is {}; it is at least 0", options.beta);
  const LossOperands x = operands_of(kWhere, input, target);
  const Variable values = options.beta == 0
                              ? abs(sub(x.input, x.target))
                              : div(parabola_and_lines(x, options.beta), options.beta);
  return x.reduced(values, options.reduction);
}

Variable bce_with_logits_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                              const BceWithLogitsOptions& options) {
  const LossOperands x = operands_of("nn.bce_with_logits_loss", input, target);
  Variable positive = mul(x.target, softplus(neg(x.input)));
  if (options.pos_weight.defined())
    positive = mul(positive,
                   expanded_weight("nn.bce_with_logits_loss", "pos_weight", options.pos_weight, x));
  Variable values = add(positive, mul(sub(1, x.target), softplus(x.input)));
  if (options.weight.defined())
    values = mul(values, expanded_weight("nn.bce_with_logits_loss", "weight", options.weight, x));
  return x.reduced(values, options.reduction);
}

Variable kl_div(const VariableOrTensor& input, const VariableOrTensor& target,
                const KlDivOptions& options) {
  const LossOperands x = operands_of("nn.kl_div", input, target);
  const Tensor& t = x.target.tensor();
  if (options.log_target) {
    const Tensor counts = ne(t, -std::numeric_limits<double>::infinity());
    const Variable logarithm = where(counts, x.target, 0);
    return x.reduced(mul(exp(x.target), sub(logarithm, x.input)), options.reduction);
  }
  const Variable logarithm = log(where(ne(t, 0), x.target, 1));
  return x.reduced(mul(x.target, sub(logarithm, x.input)), options.reduction);
}

Variable nll_loss(const VariableOrTensor& log_probabilities, const Tensor& targets,
                  const NllLossOptions& options) {
  constexpr const char* kWhere = "nn.nll_loss";
  const LossOperands x = floating_operand(kWhere, log_probabilities);
  const Shape& shape = x.input.shape();
  TESSERA_CHECK(shape.ndim() >= 1 && targets.defined() &&
                    targets.shape() == shape.without(shape.ndim() - 1) &&
                    (targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32),
                kWhere,
                "log probabilities of shape {} take i64 or i32 targets of the shape without the "
                "last dim, got {} of shape {}",
                shape.str(), targets.defined() ? dtype_name(targets.dtype()) : "nothing",
                targets.defined() ? targets.shape().str() : "[]");
  check_class_weight(kWhere, options.weight, shape.back());
  const Tensor ignored = eq(targets, options.ignore_index);
  const Tensor classes = where(ignored, 0, targets);
  const Tensor weights = options.weight.defined()
                             ? where(ignored, 0, index(x.constant(options.weight), {classes}))
                             : cast(logical_not(ignored), x.input.dtype());
  const Variable chosen = reshape(gather(x.input, -1, classes.unsqueeze(-1)), targets.shape());
  const Variable values = where(ignored, 0, mul(neg(chosen), Variable(weights)));
  if (options.reduction == LossReduction::kMean) return div(sum(values), Variable(sum(weights)));
  return x.reduced(values, options.reduction);
}

Variable global_mean(const Variable& loss_sum, std::int64_t local_count, const MeshArgument& mesh,
                     const std::string& axis) {
  return GlobalMean(local_count, mesh, axis, loss_sum.device())(loss_sum);
}

}  // namespace tessera::nn

namespace tessera {

Variable cross_entropy(const Variable& logits, const Variable& probabilities,
                       const CrossEntropyOptions& options) {
  constexpr const char* kWhere = "nn.cross_entropy";
  TESSERA_CHECK(is_floating(probabilities.dtype()), kWhere,
                "a variable of {} as targets: class indices are a Tensor, targets.tensor()",
                dtype_name(probabilities.dtype()));
  const double smoothing = options.label_smoothing;
  TESSERA_CHECK(smoothing >= 0 && smoothing <= 1, kWhere,
                "label_smoothing is {}; it is between 0 and 1", smoothing);
  TESSERA_CHECK(options.ignore_index < 0, kWhere,
                "ignore_index {} means class indices, and the targets are probabilities; give rows "
                "that shall not count a target of zeros",
                options.ignore_index);
  TESSERA_CHECK(logits.ndim() >= 1, kWhere, "logits are 0-d; the last dim counts classes");
  const Shape rows = logits.shape().without(logits.ndim() - 1);
  TESSERA_CHECK(!(probabilities.shape() == rows), kWhere,
                "targets of shape {} are {}: class indices are integers, cast(targets, "
                "DType::kI64); probabilities have the shape of the logits, {}",
                rows.str(), dtype_name(probabilities.dtype()), logits.shape().str());
  const nn::LossOperands x = nn::operands_of(kWhere, logits, probabilities);
  const std::int64_t classes = x.input.shape().back();
  nn::check_class_weight(kWhere, options.weight, classes);
  Variable target = x.target;
  if (smoothing > 0)
    target = add(mul(target, 1 - smoothing), smoothing / static_cast<double>(classes));
  if (options.weight.defined()) target = mul(target, Variable(x.constant(options.weight)));
  return x.reduced(neg(sum(mul(target, log_softmax(x.input)), {-1})), options.reduction);
}

}  // namespace tessera
