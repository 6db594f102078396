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
          .padding_mode = options.padding_mode,
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
Size2d same_padding(const Conv2dOptions& options) {
  return {options.dilation.height * (options.kernel.height - 1),
          options.dilation.width * (options.kernel.width - 1)};
}

Size2d padding_of(const Conv2dOptions& options) {
  if (!options.same_padding) return options.padding;
  const Size2d all = same_padding(options);
  return {all.height / 2, all.width / 2};
}

// Zeros that the convolution itself puts around.
Size2d zeros_of(const Conv2dOptions& options) {
  return options.padding_mode == PadMode::kConstant ? padding_of(options) : Size2d(0);
}

// What pad() puts around x: what is more at the end, and all that is not zeros; empty: nothing.
std::vector<Padding> padding_before(const Conv2dOptions& options) {
  const Size2d side = padding_of(options), zeros = zeros_of(options);
  const Size2d all =
      options.same_padding ? same_padding(options) : Size2d(2 * side.height, 2 * side.width);
  const auto along = [](std::int64_t in_all, std::int64_t each, std::int64_t zero) {
    return Padding{each - zero, in_all - each - zero};
  };
  const Padding rows = along(all.height, side.height, zeros.height),
                columns = along(all.width, side.width, zeros.width);
  if (rows.before + rows.after + columns.before + columns.after == 0) return {};
  return {rows, columns};
}

Variable padded(const Variable& x, const std::vector<Padding>& padding, PadMode mode) {
  return padding.empty() ? x : pad(x, padding, mode);
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
  TESSERA_CHECK(
      (x.ndim() == ndim || x.ndim() == ndim - 1) && x.dim(1 - ndim) == channels, where,
      "\"{}\" of shape {} expects an input [samples, {}, {}], or one without samples, got "
      "{}",
      weight.name(), weight.shape().str(), channels, ndim == 3 ? "length" : "height, width",
      x.shape().str());
  detail::check_dtype(where, weight, x);
}

}  // namespace

Conv1d::Conv1d(const Conv1dOptions& options)
    : options_({.stride = options.stride,
                .padding = zeros_of(checked("nn.Conv1d", as_2d(options))).width,
                .dilation = options.dilation,
                .groups = options.groups}),
      mode_(options.padding_mode),
      padding_(padding_before(as_2d(options))),
      weight_(weight_options(as_2d(options), {options.kernel})) {
  if (!padding_.empty()) padding_.erase(padding_.begin());
  register_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(bias_options(as_2d(options)));
  register_parameter("bias", *bias_);
}

Variable Conv1d::forward(const Variable& x) {
  check_input("nn.Conv1d", weight_, options_.groups, x);
  return conv1d(padded(x, padding_, mode_), weight_.value(), detail::value_or_none(bias_),
                options_);
}

Parameter& Conv1d::bias() { return detail::required("nn.Conv1d", bias_, kNoBias); }

Conv2d::Conv2d(const Conv2dOptions& options)
    : options_({.stride = options.stride,
                .padding = zeros_of(checked("nn.Conv2d", options)),
                .dilation = options.dilation,
                .groups = options.groups}),
      mode_(options.padding_mode),
      padding_(padding_before(options)),
      weight_(weight_options(options, {options.kernel.height, options.kernel.width})) {
  register_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(bias_options(options));
  register_parameter("bias", *bias_);
}

Variable Conv2d::forward(const Variable& x) {
  check_input("nn.Conv2d", weight_, options_.groups, x);
  return conv2d(padded(x, padding_, mode_), weight_.value(), detail::value_or_none(bias_),
                options_);
}

Parameter& Conv2d::bias() { return detail::required("nn.Conv2d", bias_, kNoBias); }

}  // namespace tessera::nn
