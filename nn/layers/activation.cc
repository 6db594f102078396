#include "tessera/nn/layers/activation.h"

#include <limits>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

// For functions made of several operations: one rounding, at the end.
template <class Function>
Variable rounded_once(const Variable& x, const Function& function) {
  return cast(function(cast(x, compute_dtype(x.dtype()))), x.dtype());
}

// clamp(x), but with slope 0 where it touches the bounds, and 1 at NaN.
Variable hardtanh(const Variable& x, double low, double high) {
  const Tensor outside = logical_or(le(x.tensor(), low), ge(x.tensor(), high));
  return where(outside, Variable(clamp(x.tensor(), low, high)), x);
}

// The same with slope 0 at NaN, as PyTorch's Hardsigmoid has.
Variable hard_clamp(const Variable& x, double low, double high) {
  const Tensor inside = logical_and(gt(x.tensor(), low), lt(x.tensor(), high));
  return where(inside, x, Variable(clamp(x.tensor(), low, high)));
}

// min(x, 0), with slope 1 at 0, where relu has 0.
Variable negative_part(const Variable& x) {
  return clamp(x, -std::numeric_limits<double>::infinity(), 0);
}

Variable elu(const Variable& x, double alpha, double scale) {
  return rounded_once(x, [&](const Variable& v) {
    return add(mul(relu(v), scale), mul(expm1(negative_part(v)), alpha * scale));
  });
}

}  // namespace

Variable ReLU::forward(const Variable& x) { return relu(x); }

Variable ReLU6::forward(const Variable& x) { return hardtanh(x, 0, 6); }

Variable LeakyReLU::forward(const Variable& x) {
  return where(gt(x.tensor(), 0), x, mul(x, options_.negative_slope));
}

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
  const Shape slopes = channels == 1 ? Shape{1} : Shape::filled(x.ndim() - 1, 1).with(0, channels);
  const Variable slope = reshape(weight_.value(), x.ndim() == 0 ? Shape{} : slopes);
  return where(gt(x.tensor(), 0), x, mul(x, slope));
}

Variable ELU::forward(const Variable& x) { return elu(x, options_.alpha, 1); }

CELU::CELU(const CELUOptions& options) : options_(options) {
  TESSERA_CHECK(options.alpha != 0, "nn.CELU", "alpha is 0; it must be another number");
}

Variable CELU::forward(const Variable& x) {
  const double alpha = options_.alpha;
  return rounded_once(x, [&](const Variable& v) {
    return add(relu(v), mul(expm1(div(negative_part(v), alpha)), alpha));
  });
}

Variable SELU::forward(const Variable& x) {
  return elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946);
}

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

Variable Mish::forward(const Variable& x) {
  return rounded_once(x, [](const Variable& v) { return mul(v, tanh(softplus(v))); });
}

Variable Sigmoid::forward(const Variable& x) { return sigmoid(x); }

Variable LogSigmoid::forward(const Variable& x) { return neg(softplus(neg(x))); }

Variable Hardsigmoid::forward(const Variable& x) {
  return rounded_once(x, [](const Variable& v) { return div(hard_clamp(add(v, 3), 0, 6), 6); });
}

Variable Hardswish::forward(const Variable& x) {
  return rounded_once(
      x, [](const Variable& v) { return div(mul(v, hard_clamp(add(v, 3), 0, 6)), 6); });
}

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
  return rounded_once(
      x, [&](const Variable& v) { return div(softplus(mul(v, options_.beta)), options_.beta); });
}

Variable Softsign::forward(const Variable& x) {
  return rounded_once(x, [](const Variable& v) { return div(v, add(abs(v), 1)); });
}

Variable Softmax::forward(const Variable& x) { return softmax(x, options_.dim); }

Variable LogSoftmax::forward(const Variable& x) { return log_softmax(x, options_.dim); }

Variable GLU::forward(const Variable& x) {
  const int dim = normalize_dim(options_.dim, x.ndim(), "nn.GLU");
  TESSERA_CHECK(x.dim(dim) % 2 == 0, "nn.GLU", "dim {} of shape {} has an odd extent; it is halved",
                dim, x.shape().str());
  const std::int64_t half = x.dim(dim) / 2;
  return rounded_once(x, [&](const Variable& v) {
    return mul(narrow(v, dim, 0, half), sigmoid(narrow(v, dim, half, half)));
  });
}

}  // namespace tessera::nn
