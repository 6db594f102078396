#include "tessera/nn/layers/rms_norm.h"

#include <limits>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.RMSNorm";

double default_eps(DType dtype) {
  return compute_dtype(dtype) == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                             : std::numeric_limits<float>::epsilon();
}

}  // namespace

RMSNorm::RMSNorm(const RMSNormOptions& options) : shape_(options.shape), eps_(options.eps) {
  detail::check_norm_options(kWhere, shape_, eps_.value_or(0));
  if (!options.affine) return;
  weight_.emplace(ParameterOptions{.shape = shape_, .dtype = options.dtype, .init = init::ones()});
  register_parameter("weight", *weight_);
}

Variable RMSNorm::forward(const Variable& x) {
  detail::check_norm_input(kWhere, scope_name(), shape_, x);
  if (weight_) detail::check_norm_dtype(kWhere, *weight_, x.dtype());
  return rms_norm(x, detail::value_or_none(weight_),
                  {.dims = shape_.ndim(), .eps = eps_.value_or(default_eps(x.dtype()))});
}

AddNorm RMSNorm::forward(const Variable& x, const Variable& residual) {
  const DType dtype = detail::checked_sum_dtype(kWhere, scope_name(), shape_, x, residual);
  if (weight_) detail::check_norm_dtype(kWhere, *weight_, dtype);
  return add_rms_norm(x, residual, detail::value_or_none(weight_),
                      {.dims = shape_.ndim(), .eps = eps_.value_or(default_eps(dtype))});
}

Parameter& RMSNorm::weight() { return detail::required(kWhere, weight_, detail::kNoWeight); }

}  // namespace tessera::nn
