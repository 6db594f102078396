#include "tessera/nn/layers/transformer/attention_weights.h"

#include <cmath>
#include <limits>

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random_scope.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.attention_with_weights";

// Each key-value head as often as query heads read it.
Variable repeat_heads(const Variable& x, std::int64_t heads) {
  const std::int64_t kv_heads = x.dim(1);
  TESSERA_CHECK(kv_heads > 0 && heads % kv_heads == 0, kWhere,
                "q has {} heads, k and v {}; those of q must be a multiple of theirs", heads,
                kv_heads);
  return heads == kv_heads ? x : repeat_interleave(x, heads / kv_heads, 1);
}

// True where the query may not see the key; undefined where all are seen.
Tensor hidden_scores(const Shape& scores, const AttentionLayerOptions& options, Device device) {
  Tensor hidden;
  if (options.mask.defined()) {
    hidden = options.mask.dtype() == DType::kBool
                 ? logical_not(options.mask)
                 : eq(options.mask, -std::numeric_limits<double>::infinity());
  }
  if (!options.causal) return hidden;
  const std::int64_t queries = scores[2], keys = scores[3];
  const bool bottom_right = options.alignment == CausalAlignment::kBottomRight;
  const TensorOptions index{.dtype = DType::kI64, .device = device};
  const Tensor last_seen =
      add(arange(queries, index), bottom_right ? keys - queries : std::int64_t{0}).unsqueeze(1);
  const Tensor later = gt(arange(keys, index), last_seen);
  return hidden.defined() ? logical_or(hidden, later) : later;
}

// Zeros, and zero gradients, for a query that sees no key: so hidden scores are very low and not
// -inf, which would make such a row NaN.
Variable masked_softmax(const Variable& scores, const Tensor& hidden) {
  if (!hidden.defined()) return softmax(scores);
  const double lowest = scores.dtype() == DType::kF16 ? -65504.0 : -3e38;
  return masked_fill(softmax(masked_fill(scores, hidden, lowest)), hidden, 0);
}

Variable drop(const Variable& weights, const AttentionLayerOptions& options) {
  if (options.training && options.dropout_p > 0 && options.box.global.ndim() > 0) {
    return dropout(weights, options.dropout_p, random::next_key(options.layer).key(), options.box);
  }
  return dropout(
      weights,
      DropoutOptions{.p = options.dropout_p, .training = options.training, .layer = options.layer});
}

}  // namespace

AttentionWithWeights attention_with_weights(const Variable& q, const Variable& k, const Variable& v,
                                            const AttentionLayerOptions& options) {
  for (const Variable* x : {&q, &k, &v}) {
    TESSERA_CHECK(x->ndim() == 4, kWhere,
                  "needs q, k and v [batch, heads, length, dim], got one of shape {}",
                  x->shape().str());
  }
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(-1))));
  Variable scores = matmul(q * scale, transpose(repeat_heads(k, q.dim(1)), -2, -1));
  if (options.mask.defined() && is_floating(options.mask.dtype())) {
    scores = scores + Variable(cast(options.mask, scores.dtype()));
  }
  const Tensor hidden = hidden_scores(scores.shape(), options, q.device());
  const Variable weights = drop(masked_softmax(scores, hidden), options);
  return {.output = matmul(weights, repeat_heads(v, q.dim(1))), .weights = weights};
}

}  // namespace tessera::nn
