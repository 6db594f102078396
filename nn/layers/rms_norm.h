#pragma once

/// y = x / sqrt(mean of squares + eps) * weight, over the last dims together.
///
///     x [..., shape] -> y of x's shape     weight [shape], starts as 1
///
/// Computed and summed in f32 for 16 bits, rounded once; the weight may then be f32 too. All of
/// PyTorch's options but device (see nn::initialize). (Zhang and Sennrich, "Root mean square layer
/// normalization", 2019.)

#include <optional>

#include "tessera/autograd/ops/nn.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

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

}  // namespace tessera::nn
