#include "tessera/nn/training/margin_loss.h"

#include <limits>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/training/loss_operands.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

// max(x, 0), with slope 1 at 0, as PyTorch's losses have it.
Variable above_0(const Variable& x) { return clamp(x, 0, std::numeric_limits<double>::infinity()); }

// Throws InvalidArgument unless `target` is floating and has one number for each vector of `input`.
void check_vectors(const char* where, const Variable& input, const Variable& target) {
  TESSERA_CHECK(input.ndim() >= 1 && is_floating(target.dtype()) &&
                    target.shape() == input.shape().without(input.ndim() - 1),
                where,
                "vectors [..., features] of shape {} take a floating target of the shape without "
                "the last dim, got {} of shape {}",
                input.shape().str(), dtype_name(target.dtype()), target.shape().str());
}

}  // namespace

Variable margin_ranking_loss(const VariableOrTensor& input1, const VariableOrTensor& input2,
                             const VariableOrTensor& target,
                             const MarginRankingLossOptions& options) {
  constexpr const char* kWhere = "nn.margin_ranking_loss";
  const LossOperands x = operands_of(kWhere, input1, input2);
  operands_of(kWhere, input1, target);
  const Variable difference = mul(x.in_dtype(target), sub(x.target, x.input));
  return x.reduced(above_0(add(difference, options.margin)), options.reduction);
}

Variable hinge_embedding_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                              const HingeEmbeddingLossOptions& options) {
  const LossOperands x = operands_of("nn.hinge_embedding_loss", input, target);
  const Tensor& t = x.target.tensor();
  const Variable apart = where(ne(t, 1), above_0(sub(options.margin, x.input)), 0);
  return x.reduced(add(apart, where(ne(t, -1), x.input, 0)), options.reduction);
}

Variable cosine_embedding_loss(const VariableOrTensor& input1, const VariableOrTensor& input2,
                               const VariableOrTensor& target,
                               const CosineEmbeddingLossOptions& options) {
  constexpr const char* kWhere = "nn.cosine_embedding_loss";
  constexpr double kMargin = 1e-12;  // added to squared lengths; PyTorch's
  const LossOperands x = operands_of(kWhere, input1, input2);
  check_vectors(kWhere, input1, target);
  const auto square_length = [&](const Variable& v) { return add(sum(square(v), {-1}), kMargin); };
  const Variable lengths = sqrt(mul(square_length(x.input), square_length(x.target)));
  const Variable cosine = div(sum(mul(x.input, x.target), {-1}), lengths);
  const Tensor& t = target.variable().tensor();
  const Variable alike = where(eq(t, 1), sub(1, cosine), 0),
                 apart = where(eq(t, -1), above_0(sub(cosine, options.margin)), 0);
  return x.reduced(add(alike, apart), options.reduction);
}

namespace {

// max(0, near - far + margin), where `far` may be the distance of positive and negative.
template <class Distance>
Variable triplet_values(const Variable& anchor, const Variable& positive, const Variable& negative,
                        const TripletMarginLossOptions& options, const Distance& distance) {
  const Variable near = distance(anchor, positive);
  Variable far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative));
  return above_0(add(sub(near, far), options.margin));
}

}  // namespace

Variable triplet_margin_loss(const VariableOrTensor& anchor, const VariableOrTensor& positive,
                             const VariableOrTensor& negative,
                             const TripletMarginLossOptions& options) {
  constexpr const char* kWhere = "nn.triplet_margin_loss";
  TESSERA_CHECK(options.margin > 0, kWhere, "margin is {}; it is above 0", options.margin);
  const LossOperands x = operands_of(kWhere, anchor, positive);
  operands_of(kWhere, anchor, negative);
  TESSERA_CHECK(x.input.ndim() >= 1, kWhere, "the anchor is 0-d; the last dim counts features");
  const Variable other = x.in_dtype(negative);
  const auto distance = [&](const Variable& a, const Variable& b) {
    return pairwise_distance(a, b, {.p = options.p, .eps = options.eps});
  };
  return x.reduced(triplet_values(x.input, x.target, other, options, distance), options.reduction);
}

Variable triplet_margin_with_distance_loss(const VariableOrTensor& anchor,
                                           const VariableOrTensor& positive,
                                           const VariableOrTensor& negative,
                                           const TripletMarginWithDistanceLossOptions& options) {
  constexpr const char* kWhere = "nn.triplet_margin_with_distance_loss";
  TESSERA_CHECK(options.margin > 0, kWhere, "margin is {}; it is above 0", options.margin);
  const LossOperands x = operands_of(kWhere, anchor, positive);
  operands_of(kWhere, anchor, negative);
  const auto distance = [&](const Variable& a, const Variable& b) {
    return options.distance ? options.distance(a, b) : pairwise_distance(a, b);
  };
  return x.reduced(triplet_values(x.input, x.target, x.in_dtype(negative),
                                  {.margin = options.margin, .swap = options.swap}, distance),
                   options.reduction);
}

Variable soft_margin_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                          LossReduction reduction) {
  const LossOperands x = operands_of("nn.soft_margin_loss", input, target);
  return x.reduced(softplus(neg(mul(x.target, x.input))), reduction);
}

Variable multi_margin_loss(const VariableOrTensor& input, const Tensor& targets,
                           const MultiMarginLossOptions& options) {
  constexpr const char* kWhere = "nn.multi_margin_loss";
  const LossOperands x = floating_operand(kWhere, input);
  const Shape& shape = x.input.shape();
  TESSERA_CHECK(options.p == 1 || options.p == 2, kWhere, "p is {}; it is 1 or 2", options.p);
  TESSERA_CHECK(shape.ndim() >= 1 && targets.defined() &&
                    targets.shape() == shape.without(shape.ndim() - 1) &&
                    (targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32),
                kWhere,
                "an input of shape {} takes i64 or i32 targets of the shape without the last dim, "
                "got {} of shape {}",
                shape.str(), targets.defined() ? dtype_name(targets.dtype()) : "nothing",
                targets.defined() ? targets.shape().str() : "[]");
  check_class_weight(kWhere, options.weight, shape.back());
  const std::int64_t classes = shape.back();
  const Tensor at = targets.unsqueeze(-1);
  const Variable own = gather(x.input, -1, at);
  const Tensor is_own = eq(arange(classes, {.dtype = DType::kI64, .device = x.input.device()}), at);
  Variable excess = relu(add(sub(x.input, own), options.margin));
  if (options.p == 2) excess = square(excess);
  Variable values = div(sum(where(is_own, 0, excess), {-1}), static_cast<double>(classes));
  if (options.weight.defined())
    values = mul(values, Variable(index(x.constant(options.weight), {targets})));
  return x.reduced(values, options.reduction);
}

Variable multilabel_margin_loss(const VariableOrTensor& input, const Tensor& targets,
                                LossReduction reduction) {
  constexpr const char* kWhere = "nn.multilabel_margin_loss";
  const LossOperands x = floating_operand(kWhere, input);
  const Shape& shape = x.input.shape();
  TESSERA_CHECK(shape.ndim() >= 1 && targets.defined() && targets.shape() == shape &&
                    (targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32),
                kWhere,
                "an input of shape {} takes i64 or i32 targets of that shape, got {} of shape {}",
                shape.str(), targets.defined() ? dtype_name(targets.dtype()) : "nothing",
                targets.defined() ? targets.shape().str() : "[]");
  const Tensor is_listed = eq(cumsum(lt(targets, 0), -1), 0);
  const Tensor listed = where(is_listed, targets, 0);
  const Tensor is_true =
      ne(scatter_add(zeros_like(listed), -1, listed, cast(is_listed, listed.dtype())), 0);
  // [..., listed class, class]
  const Variable own = unsqueeze(gather(x.input, -1, listed), -1);
  const Variable excess = relu(add(sub(unsqueeze(x.input, -2), own), 1));
  const Tensor counts = logical_and(is_listed.unsqueeze(-1), logical_not(is_true).unsqueeze(-2));
  const Variable values =
      div(sum(where(counts, excess, 0), {-2, -1}), static_cast<double>(shape.back()));
  return x.reduced(values, reduction);
}

Variable multilabel_soft_margin_loss(const VariableOrTensor& input, const VariableOrTensor& target,
                                     const MultilabelSoftMarginLossOptions& options) {
  constexpr const char* kWhere = "nn.multilabel_soft_margin_loss";
  const LossOperands x = operands_of(kWhere, input, target);
  TESSERA_CHECK(x.input.ndim() >= 1, kWhere, "the input is 0-d; the last dim counts classes");
  check_class_weight(kWhere, options.weight, x.input.shape().back());
  Variable values =
      add(mul(x.target, softplus(neg(x.input))), mul(sub(1, x.target), softplus(x.input)));
  if (options.weight.defined()) values = mul(values, Variable(x.constant(options.weight)));
  return x.reduced(mean(values, {-1}), options.reduction);
}

}  // namespace tessera::nn
