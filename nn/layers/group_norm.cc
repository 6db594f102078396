#include "tessera/nn/layers/group_norm.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {
constexpr const char* kWhere = "nn.GroupNorm";
}

GroupNorm::GroupNorm(const GroupNormOptions& options)
    : groups_(options.groups), channels_(options.channels), eps_(options.eps) {
  TESSERA_CHECK(groups_ >= 1 && channels_ >= 1 && channels_ % groups_ == 0, kWhere,
                "groups = {} must divide channels = {}, both at least 1", groups_, channels_);
  detail::check_norm_options(kWhere, {channels_}, eps_);
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
  TESSERA_CHECK(x.ndim() >= 2 && x.dim(1) == channels_, kWhere,
                "{}: expected an input [samples, {}, ...], got {}", detail::place(scope_name()),
                channels_, x.shape().str());
  if (weight_) detail::check_norm_dtype(kWhere, *weight_, x.dtype());
  return group_norm(x, detail::value_or_none(weight_), detail::value_or_none(bias_),
                    {.groups = groups_, .eps = eps_});
}

Parameter& GroupNorm::weight() { return detail::required(kWhere, weight_, detail::kNoWeight); }

Parameter& GroupNorm::bias() { return detail::required(kWhere, bias_, detail::kNoBias); }

}  // namespace tessera::nn
