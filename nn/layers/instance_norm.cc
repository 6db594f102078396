#include "tessera/nn/layers/instance_norm.h"

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn::detail {

template <class Derived>
InstanceNorm<Derived>::InstanceNorm(const InstanceNormOptions& options)
    : channels_(options.channels), eps_(options.eps), momentum_(options.momentum) {
  TESSERA_CHECK(channels_ >= 1, Derived::kName, "channels is {}; it must be at least 1", channels_);
  check_norm_options(Derived::kName, {channels_}, eps_);
  TESSERA_CHECK(momentum_ >= 0 && momentum_ <= 1, Derived::kName,
                "momentum is {}; it must lie in [0, 1]", momentum_);
  const Shape shape{channels_};
  if (options.affine) {
    weight_.emplace(ParameterOptions{.shape = shape, .dtype = options.dtype, .init = init::ones()});
    bias_.emplace(ParameterOptions{.shape = shape, .dtype = options.dtype, .init = init::zeros()});
    this->register_parameter("weight", *weight_);
    this->register_parameter("bias", *bias_);
  }
  if (!options.track_running_stats) return;
  const DType dtype = compute_dtype(options.dtype);
  running_mean_.emplace(BufferOptions{.shape = shape, .dtype = dtype, .init = init::zeros()});
  running_var_.emplace(BufferOptions{.shape = shape, .dtype = dtype, .init = init::ones()});
  num_batches_tracked_.emplace(
      BufferOptions{.shape = {}, .dtype = DType::kI64, .init = init::zeros()});
  this->register_buffer("running_mean", *running_mean_);
  this->register_buffer("running_var", *running_var_);
  this->register_buffer("num_batches_tracked", *num_batches_tracked_);
}

template <class Derived>
Variable InstanceNorm<Derived>::forward(const Variable& x) {
  const bool alone = x.ndim() == Derived::kDims - 1;
  TESSERA_CHECK((alone || x.ndim() == Derived::kDims) && x.dim(1 - Derived::kDims) == channels_,
                Derived::kName, "{}: expected an input {}, got {}", place(this->scope_name()),
                fmt::format(fmt::runtime(Derived::kInput), channels_), x.shape().str());
  if (weight_) check_norm_dtype(Derived::kName, *weight_, x.dtype());
  tessera::InstanceNormOptions options{
      .use_input_stats = this->is_training() || !has_running_stats(),
      .momentum = momentum_,
      .eps = eps_};
  if (!options.use_input_stats) {
    // A copy of the mean, which backward reads: training may go on before.
    options.running_mean = clone(running_mean_->tensor());
    options.running_var = running_var_->tensor();
  } else if (has_running_stats() && !in_backward()) {
    options.running_mean = running_mean_->tensor();
    options.running_var = running_var_->tensor();
  }
  const Variable y = instance_norm(alone ? unsqueeze(x, 0) : x, value_or_none(weight_),
                                   value_or_none(bias_), options);
  return alone ? select(y, 0, 0) : y;
}

template <class Derived>
Parameter& InstanceNorm<Derived>::weight() {
  return required(Derived::kName, weight_, "no weight: it was built without .affine = true");
}

template <class Derived>
Parameter& InstanceNorm<Derived>::bias() {
  return required(Derived::kName, bias_, "no bias: it was built without .affine = true");
}

template <class Derived>
Buffer& InstanceNorm<Derived>::buffer(std::optional<Buffer>& buffer) const {
  TESSERA_CHECK_AS(StateError, buffer.has_value(), Derived::kName,
                   "no running statistics: it was built without .track_running_stats = true");
  return *buffer;
}

template <class Derived>
Buffer& InstanceNorm<Derived>::running_mean() {
  return buffer(running_mean_);
}

template <class Derived>
Buffer& InstanceNorm<Derived>::running_var() {
  return buffer(running_var_);
}

template class InstanceNorm<InstanceNorm1d>;
template class InstanceNorm<InstanceNorm2d>;

}  // namespace tessera::nn::detail
