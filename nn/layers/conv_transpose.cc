#include "tessera/nn/layers/conv_transpose.h"

#include <algorithm>
#include <cmath>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

constexpr const char* kNoBias = "no bias: it was built with .bias = false";

// One spatial dim seen as two, so that both layers are checked by the same words.
ConvTranspose2dOptions as_2d(const ConvTranspose1dOptions& options) {
  return {.in = options.in,
          .out = options.out,
          .kernel = {1, options.kernel},
          .stride = {1, options.stride},
          .padding = {0, options.padding},
          .output_padding = {0, options.output_padding},
          .groups = options.groups,
          .bias = options.bias,
          .dilation = {1, options.dilation},
          .dtype = options.dtype};
}

void check_at_least(const char* where, const char* what, Size2d size, std::int64_t least) {
  TESSERA_CHECK(size.height >= least && size.width >= least, where,
                "{} is {}; it must be at least {}", what, std::min(size.height, size.width), least);
}

const ConvTranspose2dOptions& checked(const char* where, const ConvTranspose2dOptions& o) {
  TESSERA_CHECK(
      o.groups >= 1 && o.in >= 1 && o.out >= 1 && o.in % o.groups == 0 && o.out % o.groups == 0,
      where, "groups = {} must divide in = {} and out = {}, all at least 1", o.groups, o.in, o.out);
  check_at_least(where, "kernel", o.kernel, 1);
  check_at_least(where, "stride", o.stride, 1);
  check_at_least(where, "padding", o.padding, 0);
  check_at_least(where, "output_padding", o.output_padding, 0);
  check_at_least(where, "dilation", o.dilation, 1);
  TESSERA_CHECK(o.output_padding.height < std::max(o.stride.height, o.dilation.height) &&
                    o.output_padding.width < std::max(o.stride.width, o.dilation.width),
                where, "output_padding {} x {} must be below stride {} x {} or dilation {} x {}",
                o.output_padding.height, o.output_padding.width, o.stride.height, o.stride.width,
                o.dilation.height, o.dilation.width);
  return o;
}

Initializer default_init(const ConvTranspose2dOptions& o) {
  const double bound =
      1 / std::sqrt(static_cast<double>(o.out / o.groups * o.kernel.height * o.kernel.width));
  return init::uniform(-bound, bound);
}

// Without the channels, `kernel` is the weight's own shape.
ParameterOptions weight_options(const ConvTranspose2dOptions& options, const Shape& kernel) {
  Shape shape{options.in, options.out / options.groups};
  for (std::int64_t extent : kernel) shape.push_back(extent);
  return {.shape = shape, .dtype = options.dtype, .init = default_init(options)};
}

ParameterOptions bias_options(const ConvTranspose2dOptions& options) {
  return {.shape = {options.out}, .dtype = options.dtype, .init = default_init(options)};
}

void check_input(const char* where, const Parameter& weight, const Variable& x) {
  const std::int64_t channels = weight.shape()[0];
  const int ndim = weight.shape().ndim();
  TESSERA_CHECK(
      (x.ndim() == ndim || x.ndim() == ndim - 1) && x.dim(1 - ndim) == channels, where,
      "\"{}\" of shape {} expects an input [samples, {}, {}], or one without samples, got "
      "{}",
      weight.name(), weight.shape().str(), channels, ndim == 3 ? "length" : "height, width",
      x.shape().str());
  detail::check_dtype(where, weight, x);
}

}  // namespace

ConvTranspose1d::ConvTranspose1d(const ConvTranspose1dOptions& options)
    : options_({.stride = options.stride,
                .padding = options.padding,
                .output_padding = options.output_padding,
                .groups = options.groups,
                .dilation = options.dilation}),
      weight_(weight_options(checked("nn.ConvTranspose1d", as_2d(options)), {options.kernel})) {
  register_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(bias_options(as_2d(options)));
  register_parameter("bias", *bias_);
}

Variable ConvTranspose1d::forward(const Variable& x) {
  check_input("nn.ConvTranspose1d", weight_, x);
  return conv_transpose1d(x, weight_.value(), detail::value_or_none(bias_), options_);
}

Parameter& ConvTranspose1d::bias() {
  return detail::required("nn.ConvTranspose1d", bias_, kNoBias);
}

ConvTranspose2d::ConvTranspose2d(const ConvTranspose2dOptions& options)
    : options_({.stride = options.stride,
                .padding = options.padding,
                .output_padding = options.output_padding,
                .groups = options.groups,
                .dilation = options.dilation}),
      weight_(weight_options(checked("nn.ConvTranspose2d", options),
                             {options.kernel.height, options.kernel.width})) {
  register_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(bias_options(options));
  register_parameter("bias", *bias_);
}

Variable ConvTranspose2d::forward(const Variable& x) {
  check_input("nn.ConvTranspose2d", weight_, x);
  return conv_transpose2d(x, weight_.value(), detail::value_or_none(bias_), options_);
}

Parameter& ConvTranspose2d::bias() {
  return detail::required("nn.ConvTranspose2d", bias_, kNoBias);
}

}  // namespace tessera::nn
