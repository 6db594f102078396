#include "tessera/nn/layers/conv.h"

#include <algorithm>
#include <cmath>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

constexpr const char* kNoBias = "no bias: it was built with .bias = false";

// One spatial dim seen as two, so that both layers are checked by the same words.
Conv2dOptions as_2d(const Conv1dOptions& options) {
  return {.in = options.in,
          .out = options.out,
          .kernel = {1, options.kernel},
          .stride = {1, options.stride},
          .padding = {0, options.padding},
          .same_padding = options.same_padding,
          .dilation = {1, options.dilation},
          .groups = options.groups,
          .bias = options.bias,
          .dtype = options.dtype,
          .weight_init = options.weight_init,
          .bias_init = options.bias_init};
}

void check_at_least(const char* where, const char* what, Size2d size, std::int64_t least) {
  TESSERA_CHECK(size.height >= least && size.width >= least, where,
                "{} is {}; it must be at least {}", what, std::min(size.height, size.width), least);
}

const Conv2dOptions& checked(const char* where, const Conv2dOptions& options) {
  TESSERA_CHECK(options.groups >= 1 && options.in >= 1 && options.out >= 1 &&
                    options.in % options.groups == 0 && options.out % options.groups == 0,
                where, "groups = {} must divide in = {} and out = {}, all at least 1",
                options.groups, options.in, options.out);
  check_at_least(where, "kernel", options.kernel, 1);
  check_at_least(where, "stride", options.stride, 1);
  check_at_least(where, "padding", options.padding, 0);
  check_at_least(where, "dilation", options.dilation, 1);
  TESSERA_CHECK(!options.same_padding || options.stride == Size2d(1), where,
                "same_padding needs a stride of 1, got {} x {}", options.stride.height,
                options.stride.width);
  TESSERA_CHECK(!options.same_padding || options.padding == Size2d(0), where,
                "same_padding stands instead of padding = {} x {}; give one of them",
                options.padding.height, options.padding.width);
  detail::check_bias_init(where, options.bias, options.bias_init);
  return options;
}

// What same_padding puts around, on both sides together.
Size2d same_zeros(const Conv2dOptions& options) {
  return {options.dilation.height * (options.kernel.height - 1),
          options.dilation.width * (options.kernel.width - 1)};
}

Size2d padding_of(const Conv2dOptions& options) {
  if (!options.same_padding) return options.padding;
  const Size2d zeros = same_zeros(options);
  return {zeros.height / 2, zeros.width / 2};
}

Size2d extra_of(const Conv2dOptions& options) {
  if (!options.same_padding) return 0;
  const Size2d zeros = same_zeros(options);
  return {zeros.height % 2, zeros.width % 2};
}

Initializer default_init(const Conv2dOptions& options) {
  const double bound =
      1 / std::sqrt(static_cast<double>(options.in / options.groups * options.kernel.height *
                                        options.kernel.width));
  return init::uniform(-bound, bound);
}

// Without the channels, `kernel` is the weight's own shape.
ParameterOptions weight_options(const Conv2dOptions& options, const Shape& kernel) {
  Shape shape{options.out, options.in / options.groups};
  for (std::int64_t extent : kernel) shape.push_back(extent);
  return {.shape = shape,
          .dtype = options.dtype,
          .init = detail::chosen(options.weight_init, default_init(options))};
}

ParameterOptions bias_options(const Conv2dOptions& options) {
  return {.shape = {options.out},
          .dtype = options.dtype,
          .init = detail::chosen(options.bias_init, default_init(options))};
}

void check_input(const char* where, const Parameter& weight, std::int64_t groups,
                 const Variable& x) {
  const std::int64_t channels = weight.shape()[1] * groups;
  const int ndim = weight.shape().ndim();
  TESSERA_CHECK(x.ndim() == ndim && x.dim(1) == channels, where,
                "\"{}\" of shape {} expects an input [samples, {}, {}], got {}", weight.name(),
                weight.shape().str(), channels, ndim == 3 ? "length" : "height, width",
                x.shape().str());
  detail::check_dtype(where, weight, x);
}

}  // namespace

Conv1d::Conv1d(const Conv1dOptions& options)
    : options_({.stride = options.stride,
                .padding = padding_of(checked("nn.Conv1d", as_2d(options))).width,
                .dilation = options.dilation,
                .groups = options.groups}),
      extra_(extra_of(as_2d(options)).width),
      weight_(weight_options(as_2d(options), {options.kernel})) {
  register_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(bias_options(as_2d(options)));
  register_parameter("bias", *bias_);
}

Variable Conv1d::forward(const Variable& x) {
  check_input("nn.Conv1d", weight_, options_.groups, x);
  return conv1d(extra_ == 0 ? x : pad(x, {{0, extra_}}), weight_.value(),
                detail::value_or_none(bias_), options_);
}

Parameter& Conv1d::bias() { return detail::required("nn.Conv1d", bias_, kNoBias); }

Conv2d::Conv2d(const Conv2dOptions& options)
    : options_({.stride = options.stride,
                .padding = padding_of(checked("nn.Conv2d", options)),
                .dilation = options.dilation,
                .groups = options.groups}),
      extra_(extra_of(options)),
      weight_(weight_options(options, {options.kernel.height, options.kernel.width})) {
  register_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(bias_options(options));
  register_parameter("bias", *bias_);
}

Variable Conv2d::forward(const Variable& x) {
  check_input("nn.Conv2d", weight_, options_.groups, x);
  const Variable padded = extra_ == Size2d(0) ? x : pad(x, {{0, extra_.height}, {0, extra_.width}});
  return conv2d(padded, weight_.value(), detail::value_or_none(bias_), options_);
}

Parameter& Conv2d::bias() { return detail::required("nn.Conv2d", bias_, kNoBias); }

}  // namespace tessera::nn
