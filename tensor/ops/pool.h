#pragma once

/// Pooling: the maximum or the mean of each window of one or two spatial dims.
///
/// x [N, C, L] or [N, C, H, W], floating, any strides -> [N, C, outputs ...]; without N in x none in the result (the
/// derivatives take shapes with N). Window i begins at i
/// * stride - padding and has `kernel` elements, `dilation` apart. The number of windows is
/// `floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1`. With ceil_mode the division
/// is rounded up, but no window begins beyond the input. An adaptive pool splits the input into the
/// requested number of windows: window i is `[floor(i in / out), ceil((i + 1) in / out))`.
///
/// In a derivative each input element sums the windows that contain it, in their order. The
/// bits therefore do not depend on the number of threads.
///
/// All functions throw InvalidArgument for other dtypes and numbers of dims, sizes below 1, padding
/// above half the kernel, and inputs without a window. N may be 0.

#include <cstdint>

#include "tessera/tensor/ops/size2d.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

struct MaxPool2dOptions {
  Size2d kernel = 0;   ///< required
  Size2d stride = 0;   ///< 0: the kernel's size
  Size2d padding = 0;  ///< elements outside the input are ignored
  Size2d dilation = 1;
  bool ceil_mode = false;
};
struct MaxPool1dOptions {
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  bool ceil_mode = false;

  MaxPool2dOptions as_2d() const {
    return {.kernel = {1, kernel},
            .stride = {1, stride},
            .padding = {0, padding},
            .dilation = {1, dilation},
            .ceil_mode = ceil_mode};
  }
};
struct MaxPoolResult {
  Tensor output;
  /// i64: the row-major position of each maximum in its [H, W] (or [L]). The first of equal
  /// elements; the first NaN if there is one. -1, with an output of -inf, for a dilated window
  /// without input elements.
  Tensor indices;
};
MaxPoolResult max_pool2d(const Tensor& x, const MaxPool2dOptions& options);
MaxPoolResult max_pool1d(const Tensor& x, const MaxPool1dOptions& options);
/// Each gradient goes to the element that `indices` names; an index outside the plane names none.
/// An index inside the plane has to lie in its window, as those of max_pool2d do; where it does not,
/// the CPU adds the gradient to that element and a GPU leaves it out. For one spatial dim use
/// as_2d().
Tensor max_pool_backward(const Tensor& dy, const Tensor& indices, const Shape& x_shape,
                         const MaxPool2dOptions& options);

struct AvgPool2dOptions {
  Size2d kernel = 0;  ///< required
  Size2d stride = 0;  ///< 0: the kernel's size
  Size2d padding = 0;
  bool ceil_mode = false;
  /// Padding counts as zeros; else the mean is over the elements inside the input only.
  bool count_include_pad = true;
};
struct AvgPool1dOptions {
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;

  AvgPool2dOptions as_2d() const {
    return {.kernel = {1, kernel},
            .stride = {1, stride},
            .padding = {0, padding},
            .ceil_mode = ceil_mode,
            .count_include_pad = count_include_pad};
  }
};
Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options);
Tensor avg_pool1d(const Tensor& x, const AvgPool1dOptions& options);
Tensor avg_pool_backward(const Tensor& dy, const Shape& x_shape, const AvgPool2dOptions& options);

MaxPoolResult adaptive_max_pool2d(const Tensor& x, Size2d output);
MaxPoolResult adaptive_max_pool1d(const Tensor& x, std::int64_t output);
Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output);
Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output);
Tensor adaptive_max_pool_backward(const Tensor& dy, const Tensor& indices, const Shape& x_shape);
Tensor adaptive_avg_pool_backward(const Tensor& dy, const Shape& x_shape);

}  // namespace tessera
