#pragma once

/// Convolution (cross-correlation, as the field calls it) over one or two spatial dims.
///
///     y[n, o, i, j] = bias[o] + sum over c, a, b of
///         weight[o, c, a, b] * x[n, first(o) + c, i * stride - padding + a * dilation, j ...]
///
/// x [N, C, L] or [N, C, H, W], weight [O, C / groups, kernel ...], bias [O] or undefined -> y
/// [N, O, spatial ...] with extents floor((in + 2 padding - dilation (kernel - 1) - 1) / stride)
/// + 1. What lies outside x counts as 0. Output channels are cut into `groups` equal parts; part g
/// reads input channels [g C / groups, (g + 1) C / groups), the first of which is first(o).
///
/// One floating dtype; 16-bit ones are computed in f32 and rounded once; on a GPU cuDNN rounds
/// before the bias is added too. Any strides. Computed as products of matrices (im2col) over pieces
/// of fixed size, so that scratch is bounded and bits are equal for any number of threads. N = 0 is
/// legal.
///
/// All throw InvalidArgument when dtypes, devices, shapes or options do not fit.

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
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options = {});

struct Conv1dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;

  /// The same over a height of 1.
  Conv2dOptions as_2d() const {
    return {.stride = {1, stride},
            .padding = {0, padding},
            .dilation = {1, dilation},
            .groups = groups};
  }
};
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options = {});

/// The derivatives, for two spatial dims or one (then with Conv1dOptions::as_2d()), given the
/// gradient of y. That of the bias is the sum of dy over all dims but the channels.

/// The gradient of x, whose shape is `x_shape`.
Tensor conv_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                           const Conv2dOptions& options);
/// The gradient of the weight, whose shape is `weight_shape`.
Tensor conv_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                            const Conv2dOptions& options);
/// dweight = that + beta * dweight, in place; dweight contiguous.
void conv_backward_weight_into(const Tensor& dweight, double beta, const Tensor& dy,
                               const Tensor& x, const Conv2dOptions& options);

}  // namespace tessera
