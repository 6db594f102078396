#include "tessera/models/nets/pre_norm_block.h"

#include "tessera/autograd/ops/ops.h"

namespace tessera::models {

GeluFeedForward::GeluFeedForward(const PreNormBlockOptions& options)
    : up_({.in = options.dim, .out = options.ffn_dim, .dtype = options.dtype}),
      down_({.in = options.ffn_dim, .out = options.dim, .dtype = options.dtype}),
      dropout_({.p = options.dropout_p}) {
  register_module("up", up_);
  register_module("down", down_);
  register_module("dropout", dropout_);
}

Variable GeluFeedForward::forward(const Variable& x) { return dropout_(down_(gelu_tanh(up_(x)))); }

PreNormBlock::PreNormBlock(const PreNormBlockOptions& options)
    : attention_norm_({.shape = {options.dim}, .dtype = options.dtype}),
      attention_({.dim = options.dim,
                  .heads = options.n_heads,
                  .dropout = options.dropout_p,
                  .dtype = options.dtype}),
      resid_dropout_({.p = options.dropout_p}),
      ffn_norm_({.shape = {options.dim}, .dtype = options.dtype}),
      feed_forward_(options) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("resid_dropout", resid_dropout_);
  register_module("ffn_norm", ffn_norm_);
  register_module("feed_forward", feed_forward_);
}

Variable PreNormBlock::forward(const Variable& x, const nn::AttentionForwardOptions& call) {
  const AddNorm h = ffn_norm_(x, resid_dropout_(attention_(attention_norm_(x), call).output));
  return h.sum + feed_forward_(h.y);
}

}  // namespace tessera::models
