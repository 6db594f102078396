#include "tessera/tensor/ops/conv.h"

#include <algorithm>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/composed/conv_transpose.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera {
namespace {

// One spatial dim as two, with height 1.
Shape with_height(const Shape& shape) { return shape.ndim() == 3 ? shape.inserted(2, 1) : shape; }
Tensor with_height(const Tensor& x) { return x.ndim() == 3 ? x.unsqueeze(2) : x; }

void check_options(const char* where, const Conv2dOptions& o) {
  TESSERA_CHECK(o.stride.height >= 1 && o.stride.width >= 1 && o.dilation.height >= 1 &&
                    o.dilation.width >= 1 && o.groups >= 1,
                where, "stride {} x {}, dilation {} x {} and groups {} must be at least 1",
                o.stride.height, o.stride.width, o.dilation.height, o.dilation.width, o.groups);
  TESSERA_CHECK(o.padding.height >= 0 && o.padding.width >= 0, where,
                "padding is {} x {}; it must not be negative", o.padding.height, o.padding.width);
}

ConvAxis axis_of(const char* where, std::int64_t in, std::int64_t kernel, std::int64_t stride,
                 std::int64_t padding, std::int64_t dilation) {
  const std::int64_t span = dilation * (kernel - 1) + 1, room = in + 2 * padding;
  TESSERA_CHECK(span <= room, where,
                "a kernel of {} with dilation {} spans {}, the input of {} padded by {} only {}; "
                "pad more or shrink the kernel",
                kernel, dilation, span, in, padding, room);
  return {.in = in,
          .out = (room - span) / stride + 1,
          .kernel = kernel,
          .stride = stride,
          .padding = padding,
          .dilation = dilation};
}

// The computation, derived from the shapes of x and weight.
struct Problem {
  ConvGeometry g;
  Shape y;  // in the caller's dims
};

Problem problem_of(const char* where, const Shape& x, const Shape& weight, DType dtype,
                   const Conv2dOptions& options) {
  check_options(where, options);
  TESSERA_CHECK((x.ndim() == 3 || x.ndim() == 4) && weight.ndim() == x.ndim(), where,
                "needs x [N, C, L] with weight [O, C / groups, K], or x [N, C, H, W] with weight "
                "[O, C / groups, KH, KW]; got {} and {}",
                x.str(), weight.str());
  const Shape in = with_height(x), w = with_height(weight);
  const std::int64_t groups = options.groups;
  TESSERA_CHECK(weight.numel() > 0 && in[1] == w[1] * groups && w[0] % groups == 0, where,
                "x {} and weight {} do not fit {} groups: x must have groups times as many "
                "channels as weight's dim 1, and weight's dim 0 be a multiple of groups; no "
                "extent of weight may be 0",
                x.str(), weight.str(), groups);
  const Problem problem{.g = {.images = in[0],
                              .groups = groups,
                              .in_channels = w[1],
                              .out_channels = w[0] / groups,
                              .h = axis_of(where, in[2], w[2], options.stride.height,
                                           options.padding.height, options.dilation.height),
                              .w = axis_of(where, in[3], w[3], options.stride.width,
                                           options.padding.width, options.dilation.width),
                              .compute = compute_dtype(dtype)},
                        .y = {}};
  const ConvGeometry& g = problem.g;
  TESSERA_CHECK(g.plane() > 0, where, "x {} has no elements in a channel; it needs some", x.str());
  return {.g = g,
          .y = x.ndim() == 3 ? Shape{in[0], w[0], g.w.out} : Shape{in[0], w[0], g.h.out, g.w.out}};
}

Tensor convolve(const char* where, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const Conv2dOptions& options) {
  const Problem problem = problem_of(where, x.shape(), weight.shape(), x.dtype(), options);
  if (bias.defined()) {
    ops::check_operands(where, x, bias);
    TESSERA_CHECK(bias.shape() == Shape{weight.dim(0)}, where, "bias has shape {}, expected {}",
                  bias.shape().str(), Shape{weight.dim(0)}.str());
  }
  const Tensor y = Tensor::empty(problem.y, x.options()), input = with_height(x),
               weights = contiguous(weight), biases = bias.defined() ? contiguous(bias) : bias;
  launch<ConvKernel>(x.device(), {.x = read(input),
                                  .weight = read(weights),
                                  .bias = bias.defined() ? read(biases) : ConstView{},
                                  .y = write(with_height(y)),
                                  .g = problem.g});
  return y;
}

void check_operands(const char* where, const Tensor& x, const Tensor& weight, int ndim) {
  ops::check_operands(where, x, weight);
  ops::check_floating(where, x);
  TESSERA_CHECK(x.ndim() == ndim && weight.ndim() == ndim, where,
                "needs x and weight of {} dims, or x without N, got {} and {}", ndim,
                x.shape().str(), weight.shape().str());
}

void check_dy(const char* where, const Tensor& dy, const Shape& expected) {
  TESSERA_CHECK(dy.shape() == expected, where, "dy has shape {}, the output {}; they must be equal",
                dy.shape().str(), expected.str());
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  if (x.defined() && x.ndim() == 3)
    return conv2d(x.unsqueeze(0), weight, bias, options).select(0, 0);
  check_operands("conv2d", x, weight, 4);
  return convolve("conv2d", x, weight, bias, options);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  if (x.defined() && x.ndim() == 2)
    return conv1d(x.unsqueeze(0), weight, bias, options).select(0, 0);
  check_operands("conv1d", x, weight, 3);
  return convolve("conv1d", x, weight, bias, options.as_2d());
}

Tensor conv_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                           const Conv2dOptions& options) {
  constexpr const char* kWhere = "conv_backward_input";
  ops::check_operands(kWhere, dy, weight);
  ops::check_floating(kWhere, dy);
  const Problem problem = problem_of(kWhere, x_shape, weight.shape(), dy.dtype(), options);
  check_dy(kWhere, dy, problem.y);
  const Tensor dx = Tensor::empty(x_shape, dy.options()), gradient = with_height(dy),
               weights = contiguous(weight);
  launch<ConvBackwardInputKernel>(
      dy.device(),
      {.dy = read(gradient), .weight = read(weights), .dx = write(dx), .g = problem.g});
  return dx;
}

namespace {

// Shared by both forms.
void add_weight_gradient(const char* where, const Tensor& dweight, double beta, const Tensor& dy,
                         const Tensor& x, const Conv2dOptions& options) {
  ops::check_operands(where, dy, x);
  ops::check_floating(where, dy);
  ops::check_defined(where, "dweight", dweight);
  ops::check_same_dtype(where, dy, dweight);
  ops::check_same_device(where, dy, dweight);
  TESSERA_CHECK(dweight.is_contiguous(), where,
                "dweight of shape {} has strides {}; it must be contiguous", dweight.shape().str(),
                dweight.strides().str());
  const Problem problem = problem_of(where, x.shape(), dweight.shape(), dy.dtype(), options);
  check_dy(where, dy, problem.y);
  const Tensor gradient = with_height(dy), input = with_height(x);
  launch<ConvBackwardWeightKernel>(dy.device(), {.dy = read(gradient),
                                                 .x = read(input),
                                                 .dweight = overwrite(dweight, where),
                                                 .beta = beta,
                                                 .g = problem.g});
}

}  // namespace

void conv_backward_weight_into(const Tensor& dweight, double beta, const Tensor& dy,
                               const Tensor& x, const Conv2dOptions& options) {
  add_weight_gradient("conv_backward_weight_into", dweight, beta, dy, x, options);
}

Tensor conv_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                            const Conv2dOptions& options) {
  ops::check_defined("conv_backward_weight", "dy", dy);
  const Tensor dweight = Tensor::empty(weight_shape, dy.options());
  add_weight_gradient("conv_backward_weight", dweight, 0, dy, x, options);
  return dweight;
}

namespace {

// One spatial dim of a transposed convolution.
struct TransposedAxis {
  std::int64_t out = 0;
  std::int64_t more = 0;  // zeros at the end of x
};

TransposedAxis transposed_axis(const char* where, std::int64_t in, const ConvAxis& a,
                               std::int64_t output_padding) {
  TESSERA_CHECK(output_padding >= 0 && output_padding < std::max(a.stride, a.dilation), where,
                "output_padding is {}; it must be below the stride {} or the dilation {}, and not "
                "negative",
                output_padding, a.stride, a.dilation);
  const std::int64_t out =
      (in - 1) * a.stride - 2 * a.padding + a.dilation * (a.kernel - 1) + output_padding + 1;
  TESSERA_CHECK(in >= 1 && out >= 1, where,
                "an input of {} becomes an output of {}; both must be at least 1", in, out);
  return {.out = out, .more = output_padding / a.stride};
}

}  // namespace

composed::TransposedConv composed::transposed_conv(const char* where, int ndim, const Tensor& x,
                                                   const Tensor& weight, const Tensor& bias,
                                                   const ConvTranspose2dOptions& o) {
  check_operands(where, x, weight, ndim);
  const TransposedConv plan{
      .y = {},
      .convolution = {
          .stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups}};
  check_options(where, plan.convolution);
  TESSERA_CHECK(weight.numel() > 0 && x.dim(1) == weight.dim(0) && x.dim(1) % o.groups == 0, where,
                "x {} and weight {} do not fit {} groups: weight's dim 0 must be x's channels, a "
                "multiple of groups; no extent of weight may be 0",
                x.shape().str(), weight.shape().str(), o.groups);
  const std::int64_t channels = weight.dim(1) * o.groups;
  if (bias.defined()) {
    ops::check_operands(where, x, bias);
    TESSERA_CHECK(bias.shape() == Shape{channels}, where, "bias has shape {}, expected {}",
                  bias.shape().str(), Shape{channels}.str());
  }
  const Shape in = with_height(x.shape()), kernel = with_height(weight.shape());
  const TransposedAxis h = transposed_axis(where, in[2],
                                           {.kernel = kernel[2],
                                            .stride = o.stride.height,
                                            .padding = o.padding.height,
                                            .dilation = o.dilation.height},
                                           o.output_padding.height),
                       w = transposed_axis(where, in[3],
                                           {.kernel = kernel[3],
                                            .stride = o.stride.width,
                                            .padding = o.padding.width,
                                            .dilation = o.dilation.width},
                                           o.output_padding.width);
  TransposedConv out = plan;
  out.more = {h.more, w.more};
  out.y = x.ndim() == 3 ? Shape{in[0], channels, w.out} : Shape{in[0], channels, h.out, w.out};
  return out;
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options) {
  if (x.defined() && x.ndim() == 3)
    return conv_transpose2d(x.unsqueeze(0), weight, bias, options).select(0, 0);
  return composed::conv_transpose("conv_transpose2d", 4, x, weight, bias, options,
                                  conv_backward_input);
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dOptions& options) {
  if (x.defined() && x.ndim() == 2)
    return conv_transpose1d(x.unsqueeze(0), weight, bias, options).select(0, 0);
  return composed::conv_transpose("conv_transpose1d", 3, x, weight, bias, options.as_2d(),
                                  conv_backward_input);
}

}  // namespace tessera
