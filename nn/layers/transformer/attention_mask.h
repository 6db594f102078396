#pragma once

/// Masks of attention layers. They follow nn.MultiheadAttention and nn.Transformer of PyTorch: in a
/// bool mask *true may not be attended to*. (scaled_dot_product_attention means the opposite, there
/// as here; merge_attention_masks turns it round.)

#include <cstdint>

#include "tessera/tensor/tensor.h"

namespace tessera::nn {

/// What a query may not see, of scores [batch, heads, queries, keys]. Each may be undefined, and is
/// bool (true: may not be attended to) or floating (added to the scores; -inf hides).
struct AttentionMasks {
  /// [queries, keys], [batch * heads, queries, keys] with a sample's heads together, or 4 dims that
  /// broadcast to the scores.
  Tensor attn_mask = {};
  Tensor key_padding_mask = {};  ///< [batch, keys]
};

/// Both as the one mask that scaled_dot_product_attention takes, where bool true may attend;
/// undefined where both are. Throws InvalidArgument for other dtypes and shapes.
Tensor merge_attention_masks(const AttentionMasks& masks, const Shape& scores);

/// [size, size], floating: 0 where position i may see position j, j <= i, else -inf. Attention with
/// is_causal does the same without a mask, and skips what is hidden.
Tensor generate_square_subsequent_mask(std::int64_t size, const TensorOptions& options = {});

}  // namespace tessera::nn
