#pragma once

/// Convolution (cross-correlation, as the field calls it) over one or two spatial dims.
///
///     1d: x [N, in, L] -> y [N, out, L']       weight [out, in / groups, kernel], bias [out]
///     2d: x [N, in, H, W] -> y [N, out, H', W']    weight [out, in / groups, kernel h, kernel w]
///
/// with L' = floor((L + 2 padding - dilation (kernel - 1) - 1) / stride) + 1; formula and groups:
/// tensor/ops/conv.h. Weight and bias start uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)), fan_in =
/// in / groups * numel of the kernel, as in PyTorch, unless told otherwise. x has the layer's
/// dtype; in an AutocastGuard any floating one. 16-bit ones are computed in f32 and rounded once.
///
/// Without N in x none in y. Left out of PyTorch's options: device (see nn::initialize).

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/conv.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::nn {

struct Conv1dOptions {
  std::int64_t in = 0;      ///< channels; required, >= 1, a multiple of groups
  std::int64_t out = 0;     ///< the same
  std::int64_t kernel = 0;  ///< required, >= 1
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  /// L' = L, for stride 1, instead of `padding`; where the padding is odd, one more element stands
  /// at the end.
  bool same_padding = false;
  PadMode padding_mode = PadMode::kConstant;  ///< kConstant: zeros
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::kF32;
  /// Initial values of weight and bias (init.h); empty: PyTorch's.
  Initializer weight_init = {};
  Initializer bias_init = {};
};

class Conv1d final : public Layer<Conv1d> {
 public:
  using Options = Conv1dOptions;
  /// Throws InvalidArgument for sizes that are out of range, groups that do not divide the
  /// channels, same_padding with a stride or a padding, and a bias_init without a bias.
  explicit Conv1d(const Conv1dOptions& options);
  Conv1d(int, int, int, const auto&...) = delete;  ///< {.in = 3, .out = 8, .kernel = 5}

  /// Throws InvalidArgument naming the weight when x has other channels or dims, or another dtype.
  Variable forward(const Variable& x);

  Parameter& weight() { return weight_; }
  bool has_bias() const { return bias_.has_value(); }
  /// Throws StateError when built without.
  Parameter& bias();

 private:
  tessera::Conv1dOptions options_;
  PadMode mode_;
  std::vector<Padding> padding_;  // of x, beside the zeros of options_
  Parameter weight_;
  std::optional<Parameter> bias_;
};

struct Conv2dOptions {
  std::int64_t in = 0;   ///< channels; required, >= 1, a multiple of groups
  std::int64_t out = 0;  ///< the same
  Size2d kernel = 0;     ///< required, >= 1
  Size2d stride = 1;
  Size2d padding = 0;
  /// H' = H and W' = W, for stride 1, instead of `padding`; where the padding is odd, one more row
  /// stands at the bottom and one more column at the right.
  bool same_padding = false;
  PadMode padding_mode = PadMode::kConstant;  ///< kConstant: zeros
  Size2d dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::kF32;
  /// Initial values of weight and bias (init.h); empty: PyTorch's.
  Initializer weight_init = {};
  Initializer bias_init = {};
};

class Conv2d final : public Layer<Conv2d> {
 public:
  using Options = Conv2dOptions;
  /// As Conv1d.
  explicit Conv2d(const Conv2dOptions& options);
  Conv2d(int, int, Size2d, const auto&...) = delete;  ///< {.in = 3, .out = 8, .kernel = 5}

  /// Throws InvalidArgument naming the weight when x has other channels or dims, or another dtype.
  Variable forward(const Variable& x);

  Parameter& weight() { return weight_; }
  bool has_bias() const { return bias_.has_value(); }
  /// Throws StateError when built without.
  Parameter& bias();

 private:
  tessera::Conv2dOptions options_;
  PadMode mode_;
  std::vector<Padding> padding_;  // of x, beside the zeros of options_
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace tessera::nn
