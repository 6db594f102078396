#pragma once

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, over the last dims together.
///
///     x [..., shape] -> y of x's shape     weight [shape], starts as 1; bias [shape], as 0
///
/// The variance divides by the count. Computed and summed in f32 for 16 bits, rounded once; weight
/// and bias may then be f32 too. All of PyTorch's options but device (see nn::initialize). (Ba,
/// Kiros and Hinton, "Layer normalization", 2016.)

#include <optional>

#include "tessera/autograd/ops/nn.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

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

}  // namespace tessera::nn
