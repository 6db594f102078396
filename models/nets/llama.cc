#include "tessera/models/nets/llama.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/nn/parameter.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.Llama";

const LlamaOptions& checked(const LlamaOptions& options) {
  check_extent(kWhere, "layers", options.layers);
  check_extent(kWhere, "vocab_size", options.vocab_size);
  check_extent(kWhere, "max_seq_len", options.max_seq_len);
  check_extent(kWhere, "kv_heads", options.kv_heads);
  check_extent(kWhere, "ffn_dim", options.ffn_dim);
  check_heads(kWhere, options.dim, options.heads);
  TESSERA_CHECK(options.heads % options.kv_heads == 0, kWhere,
                "heads is {}, kv_heads {}; kv_heads must divide heads", options.heads,
                options.kv_heads);
  TESSERA_CHECK(options.dim / options.heads % 2 == 0, kWhere,
                "dim {} over {} heads gives a head {} features; rotary positions turn pairs of "
                "them: make it even",
                options.dim, options.heads, options.dim / options.heads);
  return options;
}

nn::RMSNormOptions norm_options(const LlamaOptions& options) {
  return {.shape = {options.dim}, .eps = options.norm_eps, .dtype = options.dtype};
}

nn::LinearOptions linear_options(const LlamaOptions& options, std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .bias = false, .dtype = options.dtype};
}

nn::MultiheadAttentionOptions attention_options(const LlamaOptions& options,
                                                std::shared_ptr<nn::RotaryEmbedding> rotary) {
  return {.dim = options.dim,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .dropout = options.dropout,
          .bias = false,
          .rotary = std::move(rotary),
          .dtype = options.dtype};
}

}  // namespace

LlamaFeedForward::LlamaFeedForward(const LlamaOptions& options)
    : gate_(linear_options(options, options.dim, options.ffn_dim)),
      up_(linear_options(options, options.dim, options.ffn_dim)),
      down_(linear_options(options, options.ffn_dim, options.dim)),
      dropout_({.p = options.dropout}) {
  register_module("gate", gate_);
  register_module("up", up_);
  register_module("down", down_);
  register_module("dropout", dropout_);
}

Variable LlamaFeedForward::forward(const Variable& x) {
  return dropout_(down_(swiglu(gate_(x), up_(x))));
}

LlamaBlock::LlamaBlock(const LlamaOptions& options, std::shared_ptr<nn::RotaryEmbedding> rotary)
    : attention_norm_(norm_options(options)),
      attention_(attention_options(options, std::move(rotary))),
      resid_dropout_({.p = options.dropout}),
      ffn_norm_(norm_options(options)),
      feed_forward_(options) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("resid_dropout", resid_dropout_);
  register_module("ffn_norm", ffn_norm_);
  register_module("feed_forward", feed_forward_);
}

Variable LlamaBlock::forward(const Variable& x, const nn::AttentionForwardOptions& call) {
  const AddNorm h = ffn_norm_(x, resid_dropout_(attention_(attention_norm_(x), call).output));
  return h.sum + feed_forward_(h.y);
}

Llama::Llama(const LlamaOptions& options)
    : options_(checked(options)),
      token_embedding_({.entries = options.vocab_size, .dim = options.dim, .dtype = options.dtype}),
      dropout_({.p = options.dropout}),
      norm_(norm_options(options)),
      head_(language_head(options.dim, options.vocab_size, options.dtype)) {
  const auto rotary = std::make_shared<nn::RotaryEmbedding>(
      nn::RotaryEmbeddingOptions{.dim = options.dim / options.heads,
                                 .max_length = options.max_seq_len,
                                 .base = options.rotary_base});
  for (std::int64_t i = 0; i < options.layers; ++i) blocks_.add<LlamaBlock>(options, rotary);
  register_module("token_embedding", token_embedding_);
  register_module("dropout", dropout_);
  register_module("blocks", blocks_);
  register_module("norm", norm_);
  register_module("head", head_);
  if (options.weight_tying) nn::tie(token_embedding_.weight(), head_.weight());
  start_as_gpt2(*this, options.layers);
}

Variable Llama::hidden_states(const Variable& tokens, const DecodeCall& call) {
  const std::int64_t past = cached_length(call.cache);
  check_tokens(kWhere, tokens, past, max_length());
  Variable h = dropout_(token_embedding_(tokens));
  std::int64_t layer = 0;
  for (LlamaBlock& block : blocks()) h = block(h, causal_call(call.cache, layer++));
  return norm_(h);
}

Variable Llama::forward(const Variable& tokens, const DecodeCall& call) {
  return head_(hidden_states(tokens, call));
}

Variable Llama::hidden(const Variable& tokens, const DecodeCall& call) {
  const auto states = [this](const Variable& own, const DecodeCall& own_call) {
    return hidden_states(own, own_call);
  };
  return hooked(states, tokens, call);
}

namespace {

constexpr std::int64_t kBytes = 256;  // vocabulary of a byte-level tokenizer

// With the vocabulary and sequence length of Llama 1; presets of later models override them.
LlamaOptions published(std::int64_t layers, std::int64_t dim, std::int64_t heads,
                       std::int64_t kv_heads, std::int64_t ffn_dim, double norm_eps) {
  return {.layers = layers,
          .vocab_size = 32000,
          .max_seq_len = 2048,
          .dim = dim,
          .heads = heads,
          .kv_heads = kv_heads,
          .ffn_dim = ffn_dim,
          .norm_eps = norm_eps};
}

LlamaOptions llama3_8b() {
  LlamaOptions options = published(32, 4096, 32, 8, 14336, 1e-5);
  options.vocab_size = 128256;
  options.max_seq_len = 8192;
  options.rotary_base = 500000;
  return options;
}

std::vector<LlamaPreset> make_presets() {
  return {
      {.name = "small",
       .description = "small enough to train on a CPU",
       .options = {.layers = 4,
                   .vocab_size = kBytes,
                   .max_seq_len = 256,
                   .dim = 192,
                   .heads = 6,
                   .kv_heads = 2,
                   .ffn_dim = 512}},
      {.name = "tiny",
       .description = "for tests: a few thousand parameters",
       .options = {.layers = 2,
                   .vocab_size = kBytes,
                   .max_seq_len = 33,
                   .dim = 24,
                   .heads = 4,
                   .kv_heads = 2,
                   .ffn_dim = 62}},
      {.name = "llama-160m",
       .description = "LLaMA's architecture, 162 million parameters",
       .options = published(12, 768, 12, 12, 3072, 1e-6)},
      {.name = "tinyllama-1.1b",
       .description = "TinyLlama (Zhang et al., 2024), 1.1 billion parameters",
       .options = published(22, 2048, 32, 4, 5632, 1e-5)},
      {.name = "llama-7b",
       .description = "LLaMA (Touvron et al., 2023), 6.7 billion parameters",
       .options = published(32, 4096, 32, 32, 11008, 1e-6)},
      {.name = "llama3-8b",
       .description = "Llama 3 (Grattafiori et al., 2024), 8.0 billion parameters",
       .options = llama3_8b()},
  };
}

}  // namespace

const std::vector<LlamaPreset>& llama_presets() {
  static const std::vector<LlamaPreset> presets = make_presets();
  return presets;
}

const LlamaPreset& llama_preset(std::string_view name) {
  return preset_named("models.llama", llama_presets(), name);
}

}  // namespace tessera::models
