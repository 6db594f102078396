#include "tessera/nn/layers/layer_norm.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {
constexpr const char* kWhere = "nn.LayerNorm";
}

LayerNorm::LayerNorm(const LayerNormOptions& options) : shape_(options.shape), eps_(options.eps) {
  detail::check_norm_options(kWhere, shape_, eps_);
  if (!options.affine) return;
  weight_.emplace(ParameterOptions{.shape = shape_, .dtype = options.dtype, .init = init::ones()});
  register_parameter("weight", *weight_);
  if (!options.bias) return;
  bias_.emplace(ParameterOptions{.shape = shape_, .dtype = options.dtype, .init = init::zeros()});
  register_parameter("bias", *bias_);
}

Variable LayerNorm::forward(const Variable& x) {
  detail::check_norm_input(kWhere, scope_name(), shape_, x);
  if (weight_) detail::check_norm_dtype(kWhere, *weight_, x.dtype());
  return layer_norm(x, detail::value_or_none(weight_), detail::value_or_none(bias_),
                    {.dims = shape_.ndim(), .eps = eps_});
}

AddNorm LayerNorm::forward(const Variable& x, const Variable& residual) {
  const DType dtype = detail::checked_sum_dtype(kWhere, scope_name(), shape_, x, residual);
  if (weight_) detail::check_norm_dtype(kWhere, *weight_, dtype);
  return add_layer_norm(x, residual, detail::value_or_none(weight_), detail::value_or_none(bias_),
                        {.dims = shape_.ndim(), .eps = eps_});
}

Parameter& LayerNorm::weight() { return detail::required(kWhere, weight_, detail::kNoWeight); }

Parameter& LayerNorm::bias() { return detail::required(kWhere, bias_, detail::kNoBias); }

}  // namespace tessera::nn
