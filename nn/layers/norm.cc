#include "tessera/nn/layers/norm.h"

#include <limits>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {
constexpr const char* kLayerNorm = "nn.LayerNorm";
}

LayerNorm::LayerNorm(const LayerNormOptions& options) : shape_(options.shape), eps_(options.eps) {
  detail::check_norm_options(kLayerNorm, shape_, eps_);
  if (!options.affine) return;
  weight_.emplace(ParameterOptions{.shape = shape_, .dtype = options.dtype, .init = init::ones()});
  register_parameter("weight", *weight_);
  if (!options.bias) return;
  bias_.emplace(ParameterOptions{.shape = shape_, .dtype = options.dtype, .init = init::zeros()});
  register_parameter("bias", *bias_);
}

Variable LayerNorm::forward(const Variable& x) {
  detail::check_norm_input(kLayerNorm, scope_name(), shape_, x);
  if (weight_) detail::check_norm_dtype(kLayerNorm, *weight_, x.dtype());
  return layer_norm(x, detail::value_or_none(weight_), detail::value_or_none(bias_),
                    {.dims = shape_.ndim(), .eps = eps_});
}

AddNorm LayerNorm::forward(const Variable& x, const Variable& residual) {
  const DType dtype = detail::checked_sum_dtype(kLayerNorm, scope_name(), shape_, x, residual);
  if (weight_) detail::check_norm_dtype(kLayerNorm, *weight_, dtype);
  return add_layer_norm(x, residual, detail::value_or_none(weight_), detail::value_or_none(bias_),
                        {.dims = shape_.ndim(), .eps = eps_});
}

Parameter& LayerNorm::weight() { return detail::required(kLayerNorm, weight_, detail::kNoWeight); }

Parameter& LayerNorm::bias() { return detail::required(kLayerNorm, bias_, detail::kNoBias); }

namespace {

constexpr const char* kRMSNorm = "nn.RMSNorm";

double default_eps(DType dtype) {
  return compute_dtype(dtype) == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon();
}

}  // namespace

RMSNorm::RMSNorm(const RMSNormOptions& options) : shape_(options.shape), eps_(options.eps) {
  detail::check_norm_options(kRMSNorm, shape_, eps_.value_or(0));
  if (!options.affine) return;
  weight_.emplace(ParameterOptions{.shape = shape_, .dtype = options.dtype, .init = init::ones()});
  register_parameter("weight", *weight_);
}

Variable RMSNorm::forward(const Variable& x) {
  detail::check_norm_input(kRMSNorm, scope_name(), shape_, x);
  if (weight_) detail::check_norm_dtype(kRMSNorm, *weight_, x.dtype());
  return rms_norm(x, detail::value_or_none(weight_),
                  {.dims = shape_.ndim(), .eps = eps_.value_or(default_eps(x.dtype()))});
}

AddNorm RMSNorm::forward(const Variable& x, const Variable& residual) {
  const DType dtype = detail::checked_sum_dtype(kRMSNorm, scope_name(), shape_, x, residual);
  if (weight_) detail::check_norm_dtype(kRMSNorm, *weight_, dtype);
  return add_rms_norm(x, residual, detail::value_or_none(weight_),
                      {.dims = shape_.ndim(), .eps = eps_.value_or(default_eps(dtype))});
}

Parameter& RMSNorm::weight() { return detail::required(kRMSNorm, weight_, detail::kNoWeight); }

namespace {
constexpr const char* kGroupNorm = "nn.GroupNorm";
}

GroupNorm::GroupNorm(const GroupNormOptions& options)
    : groups_(options.groups), channels_(options.channels), eps_(options.eps) {
  TESSERA_CHECK(groups_ >= 1 && channels_ >= 1 && channels_ % groups_ == 0, kGroupNorm,
                "groups = {} must divide channels = {}, both at least 1", groups_, channels_);
  detail::check_norm_options(kGroupNorm, {channels_}, eps_);
  if (!options.affine) return;
  weight_.emplace(
      ParameterOptions{.shape = {channels_}, .dtype = options.dtype, .init = init::ones()});
  register_parameter("weight", *weight_);
  if (!options.bias) return;
  bias_.emplace(
      ParameterOptions{.shape = {channels_}, .dtype = options.dtype, .init = init::zeros()});
  register_parameter("bias", *bias_);
}

Variable GroupNorm::forward(const Variable& x) {
  TESSERA_CHECK(x.ndim() >= 2 && x.dim(1) == channels_, kGroupNorm,
                "{}: expected an input [samples, {}, ...], got {}", detail::place(scope_name()),
                channels_, x.shape().str());
  if (weight_) detail::check_norm_dtype(kGroupNorm, *weight_, x.dtype());
  return group_norm(x, detail::value_or_none(weight_), detail::value_or_none(bias_),
                    {.groups = groups_, .eps = eps_});
}

Parameter& GroupNorm::weight() { return detail::required(kGroupNorm, weight_, detail::kNoWeight); }

Parameter& GroupNorm::bias() { return detail::required(kGroupNorm, bias_, detail::kNoBias); }

LocalResponseNorm::LocalResponseNorm(const LocalResponseNormOptions& options) : options_(options) {
  TESSERA_CHECK(options.size >= 1, "nn.LocalResponseNorm", "size is {}; it must be at least 1",
                options.size);
}

Variable LocalResponseNorm::forward(const Variable& x) { return local_response_norm(x, options_); }

}  // namespace tessera::nn
