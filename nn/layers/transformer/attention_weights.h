#pragma once

/// Attention that also gives its probabilities, which scaled_dot_product_attention never holds.

#include "tessera/autograd/ops/attention.h"
#include "tessera/autograd/variable.h"

namespace tessera::nn {

struct AttentionWithWeights {
  Variable output;   ///< [batch, heads, queries, value dim]
  Variable weights;  ///< [batch, heads, queries, keys]: the probabilities, after dropout
};

/// The same as scaled_dot_product_attention(q, k, v, options), dropout's draws too, up to rounding:
/// q [batch, heads, queries, dim], k and v [batch, kv heads, keys, dim]. Made of differentiable
/// operations, so twice; takes memory for several matrices of probabilities. Errors are those of
/// the operations.
AttentionWithWeights attention_with_weights(const Variable& q, const Variable& k, const Variable& v,
                                            const AttentionLayerOptions& options = {});

}  // namespace tessera::nn
