#include "tessera/nn/layers/activation.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {

Variable ReLU::forward(const Variable& x) { return relu(x); }

Variable ReLU6::forward(const Variable& x) { return relu6(x); }

Variable LeakyReLU::forward(const Variable& x) { return leaky_relu(x, options_.negative_slope); }

PReLU::PReLU(const PReLUOptions& options)
    : weight_({.shape = {options.channels},
               .dtype = options.dtype,
               .init = init::constant(options.init)}) {
  TESSERA_CHECK(options.channels >= 1, "nn.PReLU", "channels is {}; it must be at least 1",
                options.channels);
  register_parameter("weight", weight_);
}

Variable PReLU::forward(const Variable& x) {
  const std::int64_t channels = weight_.shape()[0];
  TESSERA_CHECK(channels == 1 || (x.ndim() >= 2 && x.dim(1) == channels), "nn.PReLU",
                "\"{}\" of shape {} expects an input [samples, {}, ...], got {}", weight_.name(),
                weight_.shape().str(), channels, x.shape().str());
  detail::check_dtype("nn.PReLU", weight_, x);
  return prelu(x, weight_.value());
}

Variable ELU::forward(const Variable& x) { return elu(x, options_.alpha); }

CELU::CELU(const CELUOptions& options) : options_(options) {
  TESSERA_CHECK(options.alpha != 0, "nn.CELU", "alpha is 0; it must be another number");
}

Variable CELU::forward(const Variable& x) { return celu(x, options_.alpha); }

Variable SELU::forward(const Variable& x) { return selu(x); }

Variable GELU::forward(const Variable& x) {
  switch (options_.approximate) {
    case GELUApproximate::kNone:
      return gelu(x);
    case GELUApproximate::kTanh:
      return gelu_tanh(x);
  }
  return x;
}

Variable SiLU::forward(const Variable& x) { return silu(x); }

Variable Mish::forward(const Variable& x) { return mish(x); }

Variable Sigmoid::forward(const Variable& x) { return sigmoid(x); }

Variable LogSigmoid::forward(const Variable& x) { return logsigmoid(x); }

Variable Hardsigmoid::forward(const Variable& x) { return hardsigmoid(x); }

Variable Hardswish::forward(const Variable& x) { return hardswish(x); }

Variable Tanh::forward(const Variable& x) { return tanh(x); }

Hardtanh::Hardtanh(const HardtanhOptions& options) : options_(options) {
  TESSERA_CHECK(options.min_val < options.max_val, "nn.Hardtanh",
                "min_val = {} must be below max_val = {}", options.min_val, options.max_val);
}

Variable Hardtanh::forward(const Variable& x) {
  return hardtanh(x, options_.min_val, options_.max_val);
}

Softplus::Softplus(const SoftplusOptions& options) : options_(options) {
  TESSERA_CHECK(options.beta != 0, "nn.Softplus", "beta is 0; it must be another number");
}

Variable Softplus::forward(const Variable& x) {
  const Variable wide = cast(x, compute_dtype(x.dtype()));
  return cast(div(softplus(mul(wide, options_.beta)), options_.beta), x.dtype());
}

Variable Softsign::forward(const Variable& x) { return softsign(x); }

Variable Tanhshrink::forward(const Variable& x) { return tanhshrink(x); }

Variable Hardshrink::forward(const Variable& x) { return hardshrink(x, options_.lambd); }

Softshrink::Softshrink(const ShrinkOptions& options) : options_(options) {
  TESSERA_CHECK(options.lambd >= 0, "nn.Softshrink", "lambd is {}; it must not be negative",
                options.lambd);
}

Variable Softshrink::forward(const Variable& x) { return softshrink(x, options_.lambd); }

Variable Threshold::forward(const Variable& x) {
  return threshold(x, options_.threshold, options_.value);
}

Variable Softmax::forward(const Variable& x) { return softmax(x, options_.dim); }

Variable LogSoftmax::forward(const Variable& x) { return log_softmax(x, options_.dim); }

Variable Softmin::forward(const Variable& x) { return softmin(x, options_.dim); }

Variable Softmax2d::forward(const Variable& x) {
  TESSERA_CHECK(x.ndim() == 3 || x.ndim() == 4, "nn.Softmax2d",
                "needs an input [samples, channels, height, width] or [channels, height, width], "
                "got {}",
                x.shape().str());
  return softmax(x, -3);
}

Variable GLU::forward(const Variable& x) { return glu(x, options_.dim); }

}  // namespace tessera::nn
