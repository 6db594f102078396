#include "tessera/nn/layers/linear.h"

#include <cmath>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

Initializer default_init(const LinearOptions& options) {
  const double bound = 1 / std::sqrt(static_cast<double>(options.in));
  return init::uniform(-bound, bound);
}

const LinearOptions& checked(const LinearOptions& options) {
  TESSERA_CHECK(options.in >= 1 && options.out >= 1, "nn.Linear",
                "expected in and out of at least 1, got in = {}, out = {}", options.in,
                options.out);
  detail::check_bias_init("nn.Linear", options.bias, options.bias_init);
  return options;
}

}  // namespace

Linear::Linear(const LinearOptions& options)
    : weight_({.shape = {checked(options).out, options.in},
               .dtype = options.dtype,
               .init = detail::chosen(options.weight_init, default_init(options))}),
      pitch_(options.pitch) {
  register_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(ParameterOptions{.shape = {options.out},
                                 .dtype = options.dtype,
                                 .init = detail::chosen(options.bias_init, default_init(options))});
  register_parameter("bias", *bias_);
}

Variable Linear::forward(const Variable& x) {
  const Shape& shape = weight_.shape();
  TESSERA_CHECK(x.ndim() >= 1 && x.shape().back() == shape[1], "nn.Linear",
                "\"{}\" of shape {} expects an input [..., {}], got {}", weight_.name(),
                shape.str(), shape[1], x.shape().str());
  const Variable& weight = weight_.value();
  detail::check_dtype("nn.Linear", weight_, x);
  const auto product = [&](const Variable& bias) {
    return linear(x, weight, bias, ActivationKind::kNone, pitch_);
  };
  if (!before_bias_) return product(detail::value_or_none(bias_));
  const Variable y = before_bias_(product({}));
  return bias_ ? add(y, cast(bias_->value(), y.dtype())) : y;
}

Parameter& Linear::bias() {
  TESSERA_CHECK_AS(StateError, bias_.has_value(), "nn.Linear",
                   "\"{}\" has no bias: it was built with .bias = false", weight_.name());
  return *bias_;
}

}  // namespace tessera::nn
