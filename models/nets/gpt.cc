#include "tessera/models/nets/gpt.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/nn/parameter.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.Gpt";

const GptOptions& checked(const GptOptions& options) {
  check_extent(kWhere, "n_layers", options.n_layers);
  check_extent(kWhere, "vocab_size", options.vocab_size);
  check_extent(kWhere, "max_seq_len", options.max_seq_len);
  check_heads(kWhere, options.dim, options.n_heads);
  return options;
}

}  // namespace

Gpt::Gpt(const GptOptions& options)
    : options_(checked(options)),
      token_embedding_({.entries = options.vocab_size, .dim = options.dim, .dtype = options.dtype}),
      position_embedding_(
          {.entries = options.max_seq_len, .dim = options.dim, .dtype = options.dtype}),
      dropout_({.p = options.dropout_p}),
      norm_({.shape = {options.dim}, .dtype = options.dtype}),
      head_({.in = options.dim, .out = options.vocab_size, .bias = false, .dtype = options.dtype}) {
  for (std::int64_t i = 0; i < options.n_layers; ++i) {
    blocks_.add<PreNormBlock>({.dim = options.dim,
                               .n_heads = options.n_heads,
                               .ffn_dim = 4 * options.dim,
                               .dropout_p = options.dropout_p,
                               .dtype = options.dtype});
  }
  register_module("token_embedding", token_embedding_);
  register_module("position_embedding", position_embedding_);
  register_module("dropout", dropout_);
  register_module("blocks", blocks_);
  register_module("norm", norm_);
  register_module("head", head_);
  if (options.weight_tying) nn::tie(token_embedding_.weight(), head_.weight());
  start_as_gpt2(*this, options.n_layers);
}

Variable Gpt::forward(const Variable& tokens, const DecodeCall& call) {
  const std::int64_t past = cached_length(call.cache);
  check_tokens(kWhere, tokens, past, max_length());
  Variable h = dropout_(token_embedding_(tokens) + position_embedding_(positions_of(tokens, past)));
  std::int64_t layer = 0;
  for (PreNormBlock& block : blocks()) {
    h = block(h, causal_call(call.cache, layer++));
  }
  return at_least_f32(head_(norm_(h)));
}

}  // namespace tessera::models
