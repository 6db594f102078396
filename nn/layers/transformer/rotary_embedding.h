#pragma once

/// Rotary position embedding as a layer (Su et al., "RoFormer", 2021): the queries and keys of
/// attention are turned by angles that grow with their positions, so that their products depend on
/// distances. The formula stands at rotary() of tensor/ops/nn.h.
///
///     x [..., positions, heads, features] -> the same shape, its first `dim` features turned
///
/// No parameters. Buffers "cos" and "sin" [max_length, dim / 2] hold the table in f64, not
/// persistent; it is rounded once to the dtype that x is computed in (f32 for 16 bits), whatever
/// the model was converted to.

#include <cstdint>

#include "tessera/autograd/ops/nn.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

struct RotaryEmbeddingOptions {
  std::int64_t dim = 0;         ///< required, even: features that are turned, of those of a head
  std::int64_t max_length = 0;  ///< required: positions in the table
  double base = 10000;          ///< "theta"
  std::int64_t offset = 0;      ///< position of the first row of the table
  RotaryPairing pairing = RotaryPairing::kHalves;
};

class RotaryEmbedding final : public Layer<RotaryEmbedding> {
 public:
  using Options = RotaryEmbeddingOptions;
  /// Throws InvalidArgument for extents below 1, an odd dim, base <= 0 or a negative offset.
  explicit RotaryEmbedding(const RotaryEmbeddingOptions& options);

  /// x's first position reads row `position` of the table: what a key-value cache holds already, or
  /// where a rank's part of the sequence begins. Derivative: twice. Throws InvalidArgument for
  /// positions outside the table, fewer features than dim, and what rotary() refuses.
  Variable forward(const Variable& x, std::int64_t position = 0);

  std::int64_t dim() const { return 2 * cos_.shape()[1]; }
  std::int64_t max_length() const { return cos_.shape()[0]; }

 private:
  RotaryPairing pairing_;
  Buffer cos_;
  Buffer sin_;
};

}  // namespace tessera::nn
