#pragma once

/// Rearranging and resizing images [N, C, H, W] and rows [N, C, L].
///
/// Strides are arbitrary; results are new contiguous tensors. All functions throw InvalidArgument for shapes, dtypes
/// and sizes that do not fit. N may be 0.

#include <cstdint>
#include <vector>

#include "tessera/tensor/ops/size2d.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// The windows of unfold and fold, as those of a convolution.
struct UnfoldOptions {
  Size2d kernel = 0;  ///< required, >= 1
  Size2d dilation = 1;
  Size2d padding = 0;  ///< zeros on each side
  Size2d stride = 1;
};
/// Every window as a column (im2col): x [N, C, H, W] -> [N, C kernel, windows], windows in row-major order; without N
/// in x none in the result. Floating.
Tensor unfold(const Tensor& x, const UnfoldOptions& options);
/// The adjoint (col2im): columns [N, C kernel, windows] -> [N, C, output], where each element is the sum of the
/// columns' elements that unfold of an image of that size would take from it; without N in x none in the result.
/// Floating; 16-bit dtypes are summed in f32 and rounded once.
Tensor fold(const Tensor& x, Size2d output, const UnfoldOptions& options);

/// [..., C r^2, H, W] -> [..., C, H r, W r]: y[c, h r + i, w r + j] = x[c r^2 + i r + j, h, w]. Any dtype. (Shi et
/// al., 2016.)
Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor);
/// The inverse: [..., C, H r, W r] -> [..., C r^2, H, W].
Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor);
/// [N, C, ...]: the channels, as a matrix [groups, C / groups], transposed. Any dtype. (Zhang et al., "ShuffleNet",
/// 2017.)
Tensor channel_shuffle(const Tensor& x, std::int64_t groups);

/// How a resized image takes its elements from the places of x that they fall on.
enum class InterpolateMode : std::uint8_t {
  kNearest,       ///< floor(i in / out)
  kNearestExact,  ///< floor((i + 1/2) in / out)
  kLinear,        ///< between the two neighbours; x [N, C, L]
  kBilinear,      ///< in both dims; x [N, C, H, W]
  kArea,          ///< the mean of adaptive_avg_pool
};
struct InterpolateOptions {
  /// One number for each spatial dim, or one for all: the extents of the result, or what multiplies those of x. One
  /// of the two, and the other empty.
  std::vector<std::int64_t> size = {};
  std::vector<double> scale_factor = {};
  InterpolateMode mode = InterpolateMode::kNearest;
  /// Linear modes: the centres of the corner elements stay where they are, instead of the corners of the image.
  bool align_corners = false;
  /// Places follow from the extents of the result, and not from scale_factor, whose product is rounded down.
  bool recompute_scale_factor = false;
};
/// x [N, C, L] or [N, C, H, W], floating -> the same in other spatial extents. Element i lies at (i + 1/2) in / out -
/// 1/2 in linear modes, at i (in - 1) / (out - 1) with align_corners; with a scale_factor, 1 / scale_factor stands for
/// in / out. Places are computed in f32, for f64 in f64. 16-bit dtypes are interpolated in f32 and rounded once.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace tessera
