#include "tessera/tensor/ops/optim.h"

#include <cmath>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/optimizers.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

void check_contiguous(const char* where, const char* name, const Tensor& x) {
  TESSERA_CHECK(x.is_contiguous(), where, "{} of shape {} has strides {}; it must be contiguous",
                name, x.shape().str(), x.strides().str());
}

void check_layout(const char* where, const Tensor& parameter, const char* name, const Tensor& x) {
  ops::check_same_device(where, parameter, x);
  ops::check_same_shape(where, parameter, x);
  check_contiguous(where, name, x);
}

// A state tensor is written, so its dtype must be able to hold the computed values.
void check_state(const char* where, const Tensor& parameter, const char* name, const Tensor& x) {
  ops::check_defined(where, name, x);
  if (x.dtype() != compute_dtype(parameter.dtype())) ops::check_same_dtype(where, parameter, x);
  check_layout(where, parameter, name, x);
}

// A gradient is only read, so its dtype may be any whose values the compute dtype represents
// exactly.
void check_gradient(const char* where, const Tensor& parameter, const Tensor& gradient) {
  ops::check_defined(where, "the gradient", gradient);
  const DType computed = compute_dtype(parameter.dtype());
  const bool exact =
      is_floating(gradient.dtype()) && promote(computed, gradient.dtype()) == computed;
  if (!exact) ops::check_same_dtype(where, parameter, gradient);
  check_layout(where, parameter, "the gradient", gradient);
}

void check_parameter(const char* where, const Tensor& parameter, const Tensor& first) {
  ops::check_defined(where, "the parameter", parameter);
  check_contiguous(where, "the parameter", parameter);
  ops::check_floating(where, parameter);
  ops::check_same_dtype(where, first, parameter);
  ops::check_same_device(where, first, parameter);
}

void check_betas(const char* where, double beta1, double beta2) {
  const auto fits = [](double beta) { return beta >= 0 && beta < 1; };
  TESSERA_CHECK(fits(beta1) && fits(beta2), where, "betas are {} and {}; they must lie in [0, 1)",
                beta1, beta2);
}

void check_sgd(const SgdSegment& segment, const Tensor& first) {
  constexpr const char* kWhere = "sgd_step";
  check_parameter(kWhere, segment.parameter, first);
  check_gradient(kWhere, segment.parameter, segment.gradient);
  if (segment.momentum.defined())
    check_state(kWhere, segment.parameter, "the momentum", segment.momentum);
  TESSERA_CHECK(
      segment.momentum.defined() || (segment.momentum_factor == 0 && !segment.nesterov), kWhere,
      "the momentum is undefined; momentum_factor {} (nesterov: {}) needs a buffer, pass one",
      segment.momentum_factor, segment.nesterov);
}

void check_adam(const AdamSegment& segment, const Tensor& first) {
  constexpr const char* kWhere = "adam_step";
  const Tensor& p = segment.parameter;
  check_parameter(kWhere, p, first);
  check_gradient(kWhere, p, segment.gradient);
  check_state(kWhere, p, "exp_avg", segment.exp_avg);
  check_state(kWhere, p, "exp_avg_sq", segment.exp_avg_sq);
  if (segment.max_exp_avg_sq.defined())
    check_state(kWhere, p, "max_exp_avg_sq", segment.max_exp_avg_sq);
  if (segment.copy.defined()) {
    ops::check_floating(kWhere, segment.copy);
    check_layout(kWhere, p, "the copy", segment.copy);
  }
  TESSERA_CHECK(segment.step >= 1, kWhere, "step is {}; steps count from 1", segment.step);
  check_betas(kWhere, segment.beta1, segment.beta2);
}

void check_lion(const LionSegment& segment, const Tensor& first) {
  constexpr const char* kWhere = "lion_step";
  check_parameter(kWhere, segment.parameter, first);
  check_gradient(kWhere, segment.parameter, segment.gradient);
  check_state(kWhere, segment.parameter, "exp_avg", segment.exp_avg);
  check_betas(kWhere, segment.beta1, segment.beta2);
}

AdamKernel::Segment arguments(const AdamSegment& s) {
  const auto step = static_cast<double>(s.step);
  const Tensor& largest = s.max_exp_avg_sq;
  return {.parameter = overwrite(s.parameter, "adam_step"),
          .gradient = read(s.gradient),
          .exp_avg = overwrite(s.exp_avg, "adam_step"),
          .exp_avg_sq = overwrite(s.exp_avg_sq, "adam_step"),
          .max_exp_avg_sq = largest.defined() ? overwrite(largest, "adam_step") : View{},
          .copy = s.copy.defined() ? overwrite(s.copy, "adam_step") : View{},
          .step_size = s.lr / (1 - std::pow(s.beta1, step)),
          .root_scale = 1 / std::sqrt(1 - std::pow(s.beta2, step)),
          .beta1 = s.beta1,
          .beta2 = s.beta2,
          .eps = s.eps,
          .shrink = s.decoupled_decay ? 1 - s.lr * s.weight_decay : 1,
          .coupled_decay = s.decoupled_decay ? 0 : s.weight_decay,
          .gradient_sign = s.maximize ? -1.0 : 1.0};
}

ConstView scale_argument(const char* where, const Tensor& scale, const Tensor& parameter) {
  if (!scale.defined()) return {};
  ops::check_same_device(where, parameter, scale);
  TESSERA_CHECK(scale.ndim() == 0 && scale.dtype() == DType::kF64, where,
                "the gradient scale is {} {}; it must be 0-d f64", dtype_name(scale.dtype()),
                scale.shape().str());
  return read(scale);
}

}  // namespace

void sgd_step(const std::vector<SgdSegment>& segments, const Tensor& gradient_scale) {
  if (segments.empty()) return;
  const Tensor& first = segments.front().parameter;
  for (const SgdSegment& segment : segments) check_sgd(segment, first);
  SgdKernel::Args args;
  args.gradient_scale = scale_argument("sgd_step", gradient_scale, first);
  args.segments.reserve(segments.size());
  for (const SgdSegment& s : segments) {
    args.segments.push_back(
        {.parameter = overwrite(s.parameter, "sgd_step"),
         .gradient = read(s.gradient),
         .momentum = s.momentum.defined() ? overwrite(s.momentum, "sgd_step") : View{},
         .lr = s.lr,
         .momentum_factor = s.momentum_factor,
         .dampening = s.dampening,
         .weight_decay = s.weight_decay,
         .nesterov = s.nesterov,
         .maximize = s.maximize,
         .first_step = s.first_step});
  }
  launch<SgdKernel>(first.device(), std::move(args));
}

void adam_step(const std::vector<AdamSegment>& segments, const Tensor& gradient_scale) {
  if (segments.empty()) return;
  const Tensor& first = segments.front().parameter;
  for (const AdamSegment& segment : segments) check_adam(segment, first);
  AdamKernel::Args args;
  args.gradient_scale = scale_argument("adam_step", gradient_scale, first);
  args.segments.reserve(segments.size());
  for (const AdamSegment& segment : segments) args.segments.push_back(arguments(segment));
  launch<AdamKernel>(first.device(), std::move(args));
}

void lion_step(const std::vector<LionSegment>& segments, const Tensor& gradient_scale) {
  if (segments.empty()) return;
  const Tensor& first = segments.front().parameter;
  for (const LionSegment& segment : segments) check_lion(segment, first);
  LionKernel::Args args;
  args.gradient_scale = scale_argument("lion_step", gradient_scale, first);
  args.segments.reserve(segments.size());
  for (const LionSegment& s : segments) {
    args.segments.push_back({.parameter = overwrite(s.parameter, "lion_step"),
                             .gradient = read(s.gradient),
                             .exp_avg = overwrite(s.exp_avg, "lion_step"),
                             .lr = s.lr,
                             .beta1 = s.beta1,
                             .beta2 = s.beta2,
                             .shrink = 1 - s.lr * s.weight_decay,
                             .gradient_sign = s.maximize ? -1.0 : 1.0});
  }
  launch<LionKernel>(first.device(), std::move(args));
}

}  // namespace tessera
