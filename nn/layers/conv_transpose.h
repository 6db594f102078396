#pragma once

/// Transposed convolution over one or two spatial dims: the gradient of a convolution as a layer, which makes images
/// larger.
///
///     1d: x [N, in, L] -> y [N, out, L']           weight [in, out / groups, kernel], bias [out]
///     2d: x [N, in, H, W] -> y [N, out, H', W']    weight [in, out / groups, kernel h, kernel w]
///
/// with L' = (L - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1; formula: tensor/ops/conv.h. Without
/// N in x none in y. Weight and bias start uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)), fan_in = out / groups * numel
/// of the kernel, as in PyTorch. x has the layer's dtype; in an AutocastGuard any floating one. 16-bit ones are computed
/// in f32, rounded, and rounded again where the bias is added.
///
/// Left out of PyTorch's options: padding_mode (it knows zeros only), device (see nn::initialize), and output_size in a
/// call: give output_padding.

#include <cstdint>
#include <optional>

#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/conv.h"

namespace tessera::nn {

struct ConvTranspose1dOptions {
  std::int64_t in = 0;      ///< channels; required, >= 1, a multiple of groups
  std::int64_t out = 0;     ///< the same
  std::int64_t kernel = 0;  ///< required, >= 1
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;  ///< below stride or dilation
  std::int64_t groups = 1;
  bool bias = true;
  std::int64_t dilation = 1;
  DType dtype = DType::kF32;
};

struct ConvTranspose2dOptions {
  std::int64_t in = 0;   ///< channels; required, >= 1, a multiple of groups
  std::int64_t out = 0;  ///< the same
  Size2d kernel = 0;     ///< required, >= 1
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d output_padding = 0;  ///< below stride or dilation
  std::int64_t groups = 1;
  bool bias = true;
  Size2d dilation = 1;
  DType dtype = DType::kF32;
};

class ConvTranspose1d final : public Layer<ConvTranspose1d> {
 public:
  using Options = ConvTranspose1dOptions;
  /// Throws InvalidArgument for sizes that are out of range and groups that do not divide the channels.
  explicit ConvTranspose1d(const ConvTranspose1dOptions& options);
  ConvTranspose1d(int, int, int, const auto&...) = delete;  ///< {.in = 8, .out = 3, .kernel = 5}

  /// Throws InvalidArgument naming the weight when x has other channels or dims, or another dtype.
  Variable forward(const Variable& x);

  Parameter& weight() { return weight_; }
  bool has_bias() const { return bias_.has_value(); }
  /// Throws StateError when built without.
  Parameter& bias();

 private:
  tessera::ConvTranspose1dOptions options_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

class ConvTranspose2d final : public Layer<ConvTranspose2d> {
 public:
  using Options = ConvTranspose2dOptions;
  /// As ConvTranspose1d.
  explicit ConvTranspose2d(const ConvTranspose2dOptions& options);
  ConvTranspose2d(int, int, Size2d, const auto&...) = delete;  ///< {.in = 8, .out = 3, .kernel = 5}

  Variable forward(const Variable& x);

  Parameter& weight() { return weight_; }
  bool has_bias() const { return bias_.has_value(); }
  Parameter& bias();

 private:
  tessera::ConvTranspose2dOptions options_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace tessera::nn
