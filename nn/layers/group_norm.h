#pragma once

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, over each group of neighbouring channels
/// of a sample.
///
///     x [samples, channels, ...] -> y of x's shape     weight [channels], starts as 1; bias
///     [channels], as 0
///
/// The variance divides by the count. Computed and summed in f32 for 16 bits, rounded once; weight
/// and bias may then be f32 too. All of PyTorch's options but device (see nn::initialize). (Wu and
/// He, "Group normalization", 2018.)

#include <cstdint>
#include <optional>

#include "tessera/nn/layer.h"

namespace tessera::nn {

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

}  // namespace tessera::nn
