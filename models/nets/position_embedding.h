#pragma once

/// Adds a position embedding to each token: a row of a trained table, or sines.
///
///     x [batch, length, dim] -> x + table[first ... first + length - 1], of x's shape and dtype
///
/// Sinusoidal (Vaswani et al., "Attention is all you need", 2017, section 3.5), for i in [0, dim /
/// 2): table[p, 2i] = sin(p / 10000^(2i / dim)), and table[p, 2i + 1] is the cosine of the same
/// angle. Learned: the child "learned", an nn::Embedding.

#include <cstdint>
#include <optional>

#include "tessera/autograd/variable.h"
#include "tessera/nn/buffer.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/embedding.h"

namespace tessera::models {

enum class PositionKind : std::uint8_t { kSinusoidal, kLearned };

struct PositionEmbeddingOptions {
  std::int64_t max_length = 0;  ///< required, >= 1
  std::int64_t dim = 0;         ///< required, >= 1; even if sinusoidal
  PositionKind kind = PositionKind::kSinusoidal;
  DType dtype = DType::kF32;  ///< of learned rows; sines are stored in f64 and rounded to the dtype
                              ///< of x
};

class PositionEmbedding final : public nn::Layer<PositionEmbedding> {
 public:
  using Options = PositionEmbeddingOptions;
  /// Throws InvalidArgument for extents out of range.
  explicit PositionEmbedding(const PositionEmbeddingOptions& options);

  /// Throws InvalidArgument unless x is [batch, length, dim], and for positions outside the table.
  Variable forward(const Variable& x, std::int64_t first = 0);

 private:
  std::int64_t max_length_;
  std::optional<nn::Embedding> learned_;
  std::optional<nn::Buffer> sines_;
};

}  // namespace tessera::models
