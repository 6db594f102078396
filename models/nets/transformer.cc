#include "tessera/models/nets/transformer.h"

#include <string>

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/nn/layers/transformer/head_part.h"
#include "tessera/nn/parameter.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.Transformer";

const ModelArgs& checked(const ModelArgs& args) {
  check_extent(kWhere, "layers", args.layers, 0);
  check_extent(kWhere, "vocab_size", args.vocab_size);
  check_extent(kWhere, "max_seq_len", args.max_seq_len);
  check_heads(kWhere, args.dim, args.heads);
  return args;
}

nn::LinearOptions projection(const ModelArgs& args) {
  return {.in = args.dim, .out = args.dim, .bias = false, .dtype = args.dtype};
}

nn::LayerNormOptions norm_options(const ModelArgs& args) {
  return {.shape = {args.dim}, .dtype = args.dtype};
}

}  // namespace

Attention::Attention(const ModelArgs& args)
    : head_dim_(checked(args).dim / args.heads),
      dropout_p_(args.dropout),
      causal_(args.use_attn_mask),
      resid_dropout_({.p = args.dropout}),
      wq_(projection(args)),
      wk_(projection(args)),
      wv_(projection(args)),
      wo_(projection(args)) {
  register_module("resid_dropout", resid_dropout_);
  register_module("wq", wq_);
  register_module("wk", wk_);
  register_module("wv", wv_);
  register_module("wo", wo_);
}

// [batch, length, heads * head_dim] -> [batch, heads, length, head_dim].
Variable Attention::split_heads(const Variable& x) const {
  TESSERA_CHECK(x.dim(2) % head_dim_ == 0, "models.Attention",
                "this rank's projections are {} wide, no multiple of a head's {}: split them over "
                "ranks whose number divides the heads",
                x.dim(2), head_dim_);
  return transpose(unflatten(x, 2, {x.dim(2) / head_dim_, head_dim_}), 1, 2);
}

Variable Attention::forward(const Variable& x, const AttentionCall& call) {
  TESSERA_CHECK(x.ndim() == 3, "models.Attention", "expected x [batch, length, dim], got {}",
                x.shape().str());
  std::string layer;
  if (is_training() && dropout_p_ > 0) layer = scope_name().path() + ".probabilities";
  const Variable q = split_heads(wq_(x));
  Variable k = split_heads(wk_(x)), v = split_heads(wv_(x));
  if (call.cache != nullptr) {
    call.cache->append(k, v);
    k = call.cache->keys();
    v = call.cache->values();
  }
  random::Box box;
  if (!layer.empty()) {
    const nn::Parameter& weight = wq_.weight();
    box = nn::probability_box({q.dim(0), q.dim(1), q.dim(2), k.dim(2)},
                              nn::head_part(weight, head_dim_, weight.spec().global_shape[0]));
  }
  // The last query is aligned with the last key, whatever the cache held before.
  const CausalAlignment alignment =
      call.cache != nullptr ? CausalAlignment::kBottomRight : CausalAlignment::kTopLeft;
  const Variable y = scaled_dot_product_attention(q, k, v,
                                                  {.causal = causal_,
                                                   .alignment = alignment,
                                                   .dropout_p = dropout_p_,
                                                   .training = is_training(),
                                                   .layer = layer,
                                                   .box = box});
  return resid_dropout_(wo_(flatten(transpose(y, 1, 2), 2)));
}

FeedForward::FeedForward(const ModelArgs& args)
    : w1_({.in = checked(args).dim, .out = 4 * args.dim, .dtype = args.dtype}),
      w2_({.in = 4 * args.dim, .out = args.dim, .dtype = args.dtype}),
      resid_dropout_({.p = args.dropout}) {
  register_module("w1", w1_);
  register_module("gelu", gelu_);
  register_module("w2", w2_);
  register_module("resid_dropout", resid_dropout_);
}

Variable FeedForward::forward(const Variable& x) { return resid_dropout_(w2_(gelu_(w1_(x)))); }

TransformerBlock::TransformerBlock(const ModelArgs& args)
    : attention_norm_(norm_options(checked(args))),
      attention_(args),
      ffn_norm_(norm_options(args)),
      feed_forward_(args) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("ffn_norm", ffn_norm_);
  register_module("feed_forward", feed_forward_);
}

Variable TransformerBlock::forward(const Variable& x, const AttentionCall& call) {
  const AddNorm h = ffn_norm_(x, attention_(attention_norm_(x), call));
  return h.sum + feed_forward_(h.y);
}

Transformer::Transformer(const ModelArgs& args)
    : args_(checked(args)),
      tok_embeddings_({.entries = args.vocab_size, .dim = args.dim, .dtype = args.dtype}),
      pos_embeddings_({.entries = args.max_seq_len, .dim = args.dim, .dtype = args.dtype}),
      dropout_({.p = args.dropout}),
      norm_(norm_options(args)),
      output_(language_head(args.dim, args.vocab_size, args.dtype)) {
  register_module("tok_embeddings", tok_embeddings_);
  register_module("pos_embeddings", pos_embeddings_);
  register_module("dropout", dropout_);
  for (int i = 0; i < args.layers; ++i) {
    auto& block = layers_.add<TransformerBlock>(args);
    if (args.checkpoint_activations) nn::recompute(block);
  }
  register_module("layers", layers_);
  register_module("norm", norm_);
  register_module("output", output_);
  if (args.weight_tying) nn::tie(tok_embeddings_.weight(), output_.weight());
}

Variable Transformer::hidden_states(const Variable& tokens, const DecodeCall& call) {
  TESSERA_CHECK(call.cache == nullptr || args_.use_attn_mask, kWhere,
                "a position sees those after it without use_attn_mask, so no cache can stand for "
                "the ones before: leave the cache out");
  const std::int64_t past = cached_length(call.cache);
  check_tokens(kWhere, tokens, past, max_length());
  Variable h = dropout_(tok_embeddings_(tokens) + pos_embeddings_(positions_of(tokens, past)));
  std::int64_t layer = 0;
  for (TransformerBlock& block : blocks()) {
    h = block(h, AttentionCall{.cache = causal_call(call.cache, layer++).cache});
  }
  return norm_(h);
}

Variable Transformer::forward(const Variable& tokens, const DecodeCall& call) {
  return output_(hidden_states(tokens, call));
}

Variable Transformer::hidden(const Variable& tokens, const DecodeCall& call) {
  const auto states = [this](const Variable& own, const DecodeCall& own_call) {
    return hidden_states(own, own_call);
  };
  return hooked(states, tokens, call);
}

namespace {

constexpr std::int64_t kBytes = 256;       // vocabulary of a byte-level tokenizer
constexpr std::int64_t kSubwords = 32000;  // of a subword tokenizer, which the larger presets use

std::vector<TransformerPreset> make_presets() {
  const auto large = [](int layers, std::int64_t dim, std::int64_t heads,
                        std::int64_t max_seq_len) {
    return ModelArgs{.layers = layers,
                     .vocab_size = kSubwords,
                     .max_seq_len = max_seq_len,
                     .dim = dim,
                     .heads = heads,
                     .dropout = 0};
  };
  return {
      {.name = "small",
       .description = "small enough to train on a CPU",
       .options = {.layers = 4,
                   .vocab_size = kBytes,
                   .max_seq_len = 256,
                   .dim = 192,
                   .heads = 6,
                   .dropout = 0}},
      {.name = "tiny",
       .description = "for tests: a few thousand parameters",
       .options = {.layers = 2, .vocab_size = kBytes, .max_seq_len = 33, .dim = 20, .heads = 4}},
      {.name = "base",
       .description = "12 layers of 768 features, 110 million parameters",
       .options = large(12, 768, 12, 1024)},
      {.name = "large",
       .description = "24 layers of 1024 features, 336 million parameters",
       .options = large(24, 1024, 16, 1024)},
      {.name = "7b",
       .description = "32 layers of 4096 features, 6.6 billion parameters",
       .options = large(32, 4096, 32, 2048)},
  };
}

}  // namespace

const std::vector<TransformerPreset>& transformer_presets() {
  static const std::vector<TransformerPreset> presets = make_presets();
  return presets;
}

const TransformerPreset& transformer_preset(std::string_view name) {
  return preset_named("models.transformer", transformer_presets(), name);
}

}  // namespace tessera::models
