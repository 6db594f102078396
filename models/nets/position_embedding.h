#pragma once

/// Adds to each token what says where it stands: a row of a table that is trained, or sines.
///
///     x [batch, length, dim] -> x + table[first ... first + length - 1], of x's shape and dtype
///
/// Sinusoidal (Vaswani et al., "Attention is all you need", 2017, section 3.5), for i in [0, dim /
/// 2): table[p, 2i] = sin(p / 10000^(2i / dim)), table[p, 2i + 1] the cosine of the same. Learned:
/// the child "learned", an nn::Embedding.

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
  std::int64_t dim = 0;         ///< required, >= 1; even where sinusoidal
  PositionKind kind = PositionKind::kSinusoidal;
  DType dtype = DType::kF32;  ///< of learned rows; sines are kept in f64 and rounded to x's
};

class PositionEmbedding final : public nn::Layer<PositionEmbedding> {
 public:
  using Options = PositionEmbeddingOptions;
  /// Throws InvalidArgument for extents outside what the options say.
  explicit PositionEmbedding(const PositionEmbeddingOptions& options);

  /// Throws InvalidArgument unless x is [batch, length, dim], and for positions outside the table.
  Variable forward(const Variable& x, std::int64_t first = 0);

 private:
  std::int64_t max_length_;
  std::optional<nn::Embedding> learned_;
  std::optional<nn::Buffer> sines_;
};

}  // namespace tessera::models
