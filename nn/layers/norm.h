#pragma once

/// LayerNorm, RMSNorm, GroupNorm and LocalResponseNorm.

#include <cstdint>
#include <optional>

#include "tessera/autograd/ops/nn.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, over the last dims together.
///
///     x [..., shape] -> y of x's shape     weight [shape], starts as 1; bias [shape], as 0
///
/// The variance divides by the count. Computed and summed in f32 for 16 bits, rounded once; weight
/// and bias may then be f32 too. All of PyTorch's options but device (see nn::initialize). (Ba,
/// Kiros and Hinton, "Layer normalization", 2016.)
struct LayerNormOptions {
  Shape shape;  ///< of the last dims, which are normalised together: {512}. Required, extents >= 1
  double eps = 1e-5;
  bool affine = true;  ///< false: neither weight nor bias
  bool bias = true;    ///< false: a weight alone
  DType dtype = DType::kF32;
};

class LayerNorm final : public Layer<LayerNorm> {
 public:
  using Options = LayerNormOptions;
  /// Throws InvalidArgument for an empty shape, extents below 1 and a negative eps.
  explicit LayerNorm(const LayerNormOptions& options);
  LayerNorm(int, const auto&...) = delete;  ///< {.shape = {64}}

  /// Throws InvalidArgument when x does not end in `shape` or its dtype differs.
  Variable forward(const Variable& x);
  /// The norm of x + residual, and that sum: both in one kernel, with the bits of two. For residual
  /// streams, before a block's part or behind it:
  ///
  ///     const AddNorm h = norm(x, attention(...));
  ///     return h.sum + feed_forward(h.y);
  ///
  /// Hooks see both arguments and both results (y, then sum): one that casts the norm's input casts
  /// what is added, and so the stream. Throws InvalidArgument as above for the sum, and for a
  /// residual of another shape.
  AddNorm forward(const Variable& x, const Variable& residual);

  bool has_weight() const { return weight_.has_value(); }
  bool has_bias() const { return bias_.has_value(); }
  /// Throw StateError when built without.
  Parameter& weight();
  Parameter& bias();

 private:
  Shape shape_;
  double eps_;
  std::optional<Parameter> weight_, bias_;
};

/// y = x / sqrt(mean of squares + eps) * weight, over the last dims together.
///
///     x [..., shape] -> y of x's shape     weight [shape], starts as 1
///
/// Computed and summed in f32 for 16 bits, rounded once; the weight may then be f32 too. All of
/// PyTorch's options but device (see nn::initialize). (Zhang and Sennrich, "Root mean square layer
/// normalization", 2019.)
struct RMSNormOptions {
  Shape shape;  ///< of the last dims, which are normalised together: {512}. Required, extents >= 1
  /// None: the distance from 1 to the next number in the dtype that x is computed in, as in
  /// PyTorch.
  std::optional<double> eps = std::nullopt;
  bool affine = true;  ///< false: no weight
  DType dtype = DType::kF32;
};

class RMSNorm final : public Layer<RMSNorm> {
 public:
  using Options = RMSNormOptions;
  /// Throws InvalidArgument for an empty shape, extents below 1 and a negative eps.
  explicit RMSNorm(const RMSNormOptions& options);
  RMSNorm(int, const auto&...) = delete;  ///< {.shape = {64}}

  /// Throws InvalidArgument when x does not end in `shape` or its dtype differs.
  Variable forward(const Variable& x);
  /// The norm of x + residual, and that sum, in one kernel: see LayerNorm.
  AddNorm forward(const Variable& x, const Variable& residual);

  bool has_weight() const { return weight_.has_value(); }
  /// Throws StateError when built without.
  Parameter& weight();

 private:
  Shape shape_;
  std::optional<double> eps_;
  std::optional<Parameter> weight_;
};

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, over each group of neighbouring channels
/// of a sample.
///
///     x [samples, channels, ...] -> y of x's shape     weight [channels], starts as 1; bias
///     [channels], as 0
///
/// The variance divides by the count. Computed and summed in f32 for 16 bits, rounded once; weight
/// and bias may then be f32 too. All of PyTorch's options but device (see nn::initialize). (Wu and
/// He, "Group normalization", 2018.)
struct GroupNormOptions {
  std::int64_t groups = 0;    ///< required, >= 1
  std::int64_t channels = 0;  ///< required, a multiple of groups
  double eps = 1e-5;
  bool affine = true;  ///< false: neither weight nor bias
  bool bias = true;    ///< false: a weight alone
  DType dtype = DType::kF32;
};

class GroupNorm final : public Layer<GroupNorm> {
 public:
  using Options = GroupNormOptions;
  /// Throws InvalidArgument unless groups divide the channels and eps is not negative.
  explicit GroupNorm(const GroupNormOptions& options);
  GroupNorm(int, int, const auto&...) = delete;  ///< {.groups = 4, .channels = 8}

  /// Throws InvalidArgument when x has other channels or another dtype.
  Variable forward(const Variable& x);

  bool has_weight() const { return weight_.has_value(); }
  bool has_bias() const { return bias_.has_value(); }
  /// Throw StateError when built without.
  Parameter& weight();
  Parameter& bias();

 private:
  std::int64_t groups_, channels_;
  double eps_;
  std::optional<Parameter> weight_, bias_;
};

/// x / (k + alpha * mean of squares over `size` neighbouring channels)^beta, without parameters:
/// local_response_norm of tensor/ops/norm.h. x [samples, channels, ...] of at least 3 dims.
class LocalResponseNorm final : public Layer<LocalResponseNorm> {
 public:
  using Options = LocalResponseNormOptions;
  /// Throws InvalidArgument for a size below 1.
  explicit LocalResponseNorm(const LocalResponseNormOptions& options);
  Variable forward(const Variable& x);

 private:
  LocalResponseNormOptions options_;
};

}  // namespace tessera::nn
