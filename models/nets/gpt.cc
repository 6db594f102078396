#include "tessera/models/nets/gpt.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/nn/parameter.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.Gpt";

const GptOptions& checked(const GptOptions& options) {
  check_extent(kWhere, "layers", options.layers);
  check_extent(kWhere, "vocab_size", options.vocab_size);
  check_extent(kWhere, "max_seq_len", options.max_seq_len);
  check_heads(kWhere, options.dim, options.heads);
  return options;
}

}  // namespace

Gpt::Gpt(const GptOptions& options)
    : options_(checked(options)),
      token_embedding_({.entries = options.vocab_size, .dim = options.dim, .dtype = options.dtype}),
      position_embedding_(
          {.entries = options.max_seq_len, .dim = options.dim, .dtype = options.dtype}),
      dropout_({.p = options.dropout}),
      norm_({.shape = {options.dim}, .dtype = options.dtype}),
      head_(language_head(options.dim, options.vocab_size, options.dtype)) {
  for (std::int64_t i = 0; i < options.layers; ++i) {
    blocks_.add<PreNormBlock>({.dim = options.dim,
                               .heads = options.heads,
                               .ffn_dim = 4 * options.dim,
                               .dropout = options.dropout,
                               .dtype = options.dtype});
  }
  register_module("token_embedding", token_embedding_);
  register_module("position_embedding", position_embedding_);
  register_module("dropout", dropout_);
  register_module("blocks", blocks_);
  register_module("norm", norm_);
  register_module("head", head_);
  if (options.weight_tying) nn::tie(token_embedding_.weight(), head_.weight());
  start_as_gpt2(*this, options.layers);
}

Variable Gpt::hidden_states(const Variable& tokens, const DecodeCall& call) {
  const std::int64_t past = cached_length(call.cache);
  check_tokens(kWhere, tokens, past, max_length());
  Variable h = dropout_(token_embedding_(tokens) + position_embedding_(positions_of(tokens, past)));
  std::int64_t layer = 0;
  for (PreNormBlock& block : blocks()) {
    h = block(h, causal_call(call.cache, layer++));
  }
  return norm_(h);
}

Variable Gpt::forward(const Variable& tokens, const DecodeCall& call) {
  return head_(hidden_states(tokens, call));
}

Variable Gpt::hidden(const Variable& tokens, const DecodeCall& call) {
  const auto states = [this](const Variable& own, const DecodeCall& own_call) {
    return hidden_states(own, own_call);
  };
  return hooked(states, tokens, call);
}

namespace {

constexpr std::int64_t kBytes = 256;             // vocabulary of a byte-level tokenizer
constexpr std::int64_t kGpt2Vocabulary = 50257;  // of GPT-2's own tokenizer

std::vector<GptPreset> make_presets() {
  const auto published = [](std::int64_t layers, std::int64_t dim, std::int64_t heads,
                            std::int64_t max_seq_len) {
    return GptOptions{.layers = layers,
                      .vocab_size = kGpt2Vocabulary,
                      .max_seq_len = max_seq_len,
                      .dim = dim,
                      .heads = heads};
  };
  return {
      {.name = "small",
       .description = "small enough to train on a CPU",
       .options = {.layers = 4, .vocab_size = kBytes, .max_seq_len = 256, .dim = 192, .heads = 6}},
      {.name = "tiny",
       .description = "for tests: a few thousand parameters",
       .options = {.layers = 2, .vocab_size = kBytes, .max_seq_len = 33, .dim = 20, .heads = 4}},
      {.name = "gpt2",
       .description = "GPT-2, 124 million parameters",
       .options = published(12, 768, 12, 1024)},
      {.name = "gpt2-medium",
       .description = "GPT-2, 355 million parameters",
       .options = published(24, 1024, 16, 1024)},
      {.name = "gpt2-large",
       .description = "GPT-2, 774 million parameters",
       .options = published(36, 1280, 20, 1024)},
      {.name = "gpt2-xl",
       .description = "GPT-2, 1.6 billion parameters",
       .options = published(48, 1600, 25, 1024)},
      {.name = "gpt3-6.7b",
       .description = "the size of GPT-3 6.7B (Brown et al., 2020, table 2.1), attention dense",
       .options = published(32, 4096, 32, 2048)},
  };
}

}  // namespace

const std::vector<GptPreset>& gpt_presets() {
  static const std::vector<GptPreset> presets = make_presets();
  return presets;
}

const GptPreset& gpt_preset(std::string_view name) {
  return preset_named("models.gpt", gpt_presets(), name);
}

}  // namespace tessera::models
