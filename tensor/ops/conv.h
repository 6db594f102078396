#pragma once

/// Convolution (cross-correlation, as in PyTorch) over one or two spatial dims.
///
///     y[n, o, i, j] = bias[o] + sum over c, a, b of
///         weight[o, c, a, b] * x[n, first(o) + c, i * stride - padding + a * dilation, j ...]
///
/// x [N, C, L] or [N, C, H, W], weight [O, C / groups, kernel ...], bias [O] or undefined
/// -> y [N, O, spatial ...]; an x without N gives a y without it. Extents are
/// `floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1`.
/// Elements outside x are 0. Output channels are split into `groups` equal groups; group g reads
/// input channels [g C / groups, (g + 1) C / groups), the first of which is first(o).
///
/// All tensors have one floating dtype. 16-bit dtypes are computed in f32 and rounded once; on a
/// GPU cuDNN also rounds before the bias is added. Strides are arbitrary. Computed as matrix
/// products (im2col) of blocks of fixed size, so that scratch memory is bounded and the bits do not
/// depend on the number of threads. N may be 0.
///
/// All functions throw InvalidArgument for invalid dtypes, devices, shapes or options.

#include <cstdint>

#include "tessera/tensor/ops/size2d.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

struct Conv2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
};
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;

  /// The same options for an input of height 1.
  Conv2dOptions as_2d() const {
    return {.stride = {1, stride},
            .padding = {0, padding},
            .dilation = {1, dilation},
            .groups = groups};
  }
};
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

struct ConvTranspose2dOptions {
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d output_padding = 0;  ///< places more at the end of y; below stride or dilation
  std::int64_t groups = 1;
  Size2d dilation = 1;
};
/// Transposed convolution: the gradient of the input of a convolution, as an operation.
///
///     x [N, I, spatial ...], weight [I, O / groups, kernel ...], bias [O] or undefined -> y [N, O, spatial ...]
///
/// with or without N, with extents (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1: y[o, i
/// stride - padding + a dilation] gathers weight[c, o, a] x[c, i]. (Zeiler et al., "Deconvolutional networks", 2010.)
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

struct ConvTranspose1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;
  std::int64_t groups = 1;
  std::int64_t dilation = 1;

  /// The same options for an input of height 1.
  ConvTranspose2dOptions as_2d() const {
    return {.stride = {1, stride},
            .padding = {0, padding},
            .output_padding = {0, output_padding},
            .groups = groups,
            .dilation = {1, dilation}};
  }
};
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {});

/// The derivatives for two spatial dims, or for one with Conv1dOptions::as_2d(), from the gradient
/// of y. The gradient of the bias is the sum of dy over all dims but the channels.

/// The gradient of x, whose shape is `x_shape`.
Tensor conv_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                           const Conv2dOptions& options);
/// The gradient of the weight, whose shape is `weight_shape`.
Tensor conv_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                            const Conv2dOptions& options);
/// dweight = conv_backward_weight(...) + beta * dweight, in place; dweight must be contiguous.
void conv_backward_weight_into(const Tensor& dweight, double beta, const Tensor& dy,
                               const Tensor& x, const Conv2dOptions& options);

}  // namespace tessera
