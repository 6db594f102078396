#include "tessera/models/nets/mixture_of_experts.h"

#include <utility>

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.MixtureOfExperts";

std::int64_t head_dim(const MixtureOfExpertsOptions& options) {
  return options.dim / options.heads;
}

const MixtureOfExpertsOptions& checked(const MixtureOfExpertsOptions& options) {
  check_extent(kWhere, "layers", options.layers);
  check_extent(kWhere, "vocab_size", options.vocab_size);
  check_extent(kWhere, "max_seq_len", options.max_seq_len);
  check_extent(kWhere, "kv_heads", options.kv_heads);
  check_extent(kWhere, "ffn_dim", options.ffn_dim);
  check_heads(kWhere, options.dim, options.heads);
  TESSERA_CHECK(options.heads % options.kv_heads == 0, kWhere,
                "heads is {}, kv_heads {}; kv_heads must divide heads", options.heads,
                options.kv_heads);
  TESSERA_CHECK(head_dim(options) % 2 == 0, kWhere,
                "dim {} over {} heads gives a head {} features; rotary positions turn pairs of "
                "them: make it even",
                options.dim, options.heads, head_dim(options));
  return options;
}

nn::RMSNormOptions norm_options(const MixtureOfExpertsOptions& options) {
  return {.shape = {options.dim}, .eps = options.norm_eps, .dtype = options.dtype};
}

nn::MultiheadAttentionOptions attention_options(const MixtureOfExpertsOptions& options,
                                                std::shared_ptr<nn::RotaryEmbedding> rotary) {
  return {.dim = options.dim,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .dropout = options.dropout,
          .bias = false,
          .rotary = std::move(rotary),
          .dtype = options.dtype};
}

MixtureFeedForwardOptions feed_forward_options(const MixtureOfExpertsOptions& options) {
  return {.experts = options.experts,
          .top_k_experts = options.top_k_experts,
          .expert = {.dim = options.dim,
                     .ffn_dim = options.ffn_dim,
                     .kind = options.expert,
                     .dtype = options.dtype},
          .normalize_weights = options.normalize_weights,
          .capacity_factor = options.capacity_factor,
          .balance_loss = options.balance_loss,
          .z_loss = options.z_loss};
}

RanksAlong ranks_along(std::shared_ptr<const nn::Mesh> mesh, std::string axis) {
  TESSERA_CHECK(mesh != nullptr, kWhere,
                "the mesh is null; pass nn::local_mesh() for one rank alone");
  TESSERA_CHECK(!axis.empty() || mesh->axes().size() == 1, kWhere,
                "the mesh has the axes {}; name one of them", fmt::join(mesh->axes(), ", "));
  if (axis.empty()) axis = mesh->axes().front();
  mesh->size(axis);  // throws for an unknown axis
  return {.mesh = std::move(mesh), .axis = std::move(axis)};
}

}  // namespace

MixtureOfExpertsBlock::MixtureOfExpertsBlock(const MixtureOfExpertsOptions& options,
                                             std::shared_ptr<nn::RotaryEmbedding> rotary)
    : attention_norm_(norm_options(options)),
      attention_(attention_options(options, std::move(rotary))),
      resid_dropout_({.p = options.dropout}),
      ffn_norm_(norm_options(options)),
      feed_forward_(feed_forward_options(options)) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("resid_dropout", resid_dropout_);
  register_module("ffn_norm", ffn_norm_);
  register_module("feed_forward", feed_forward_);
}

MixtureOfExpertsBlockResult MixtureOfExpertsBlock::forward(
    const Variable& x, const nn::AttentionForwardOptions& call) {
  const AddNorm h = ffn_norm_(x, resid_dropout_(attention_(attention_norm_(x), call).output));
  const MixtureFeedForwardResult result = feed_forward_(h.y);
  return {.hidden = h.sum + resid_dropout_(result.output), .auxiliary_loss = result.auxiliary_loss};
}

MixtureOfExperts::MixtureOfExperts(const MixtureOfExpertsOptions& options)
    : options_(checked(options)),
      token_embedding_({.entries = options.vocab_size, .dim = options.dim, .dtype = options.dtype}),
      dropout_({.p = options.dropout}),
      norm_(norm_options(options)),
      head_(language_head(options.dim, options.vocab_size, options.dtype)) {
  const auto rotary = std::make_shared<nn::RotaryEmbedding>(nn::RotaryEmbeddingOptions{
      .dim = head_dim(options), .max_length = options.max_seq_len, .base = options.rotary_base});
  for (std::int64_t i = 0; i < options.layers; ++i)
    blocks_.add<MixtureOfExpertsBlock>(options, rotary);
  register_module("token_embedding", token_embedding_);
  register_module("dropout", dropout_);
  register_module("blocks", blocks_);
  register_module("norm", norm_);
  register_module("head", head_);
  start_as_gpt2(*this, options.layers);
}

void MixtureOfExperts::share_batch(std::shared_ptr<const nn::Mesh> mesh, std::string axis) {
  const RanksAlong ranks = ranks_along(std::move(mesh), std::move(axis));
  for (MixtureOfExpertsBlock& block : blocks()) block.feed_forward().share_batch(ranks);
}

void MixtureOfExperts::split_experts(std::shared_ptr<const nn::Mesh> mesh, std::string axis) {
  const RanksAlong ranks = ranks_along(std::move(mesh), std::move(axis));
  for (MixtureOfExpertsBlock& block : blocks()) block.feed_forward().split_experts(ranks);
}

MixtureOfExpertsBlockResult MixtureOfExperts::hidden_states(const Variable& tokens,
                                                            const DecodeCall& call) {
  const std::int64_t past = cached_length(call.cache);
  check_tokens(kWhere, tokens, past, max_length());
  Variable h = dropout_(token_embedding_(tokens));
  Variable auxiliary;
  std::int64_t layer = 0;
  for (MixtureOfExpertsBlock& block : blocks()) {
    const MixtureOfExpertsBlockResult result = block(h, causal_call(call.cache, layer++));
    h = result.hidden;
    if (!result.auxiliary_loss.defined()) continue;
    auxiliary = auxiliary.defined() ? auxiliary + result.auxiliary_loss : result.auxiliary_loss;
  }
  return {.hidden = norm_(h), .auxiliary_loss = auxiliary};
}

LanguageModelResult MixtureOfExperts::forward(const Variable& tokens, const DecodeCall& call) {
  const MixtureOfExpertsBlockResult states = hidden_states(tokens, call);
  return {.logits = head_(states.hidden), .auxiliary_loss = states.auxiliary_loss};
}

MixtureOfExpertsBlockResult MixtureOfExperts::hidden(const Variable& tokens,
                                                     const DecodeCall& call) {
  const auto states = [this](const Variable& own, const DecodeCall& own_call) {
    return hidden_states(own, own_call);
  };
  return hooked(states, tokens, call);
}

std::int64_t active_parameters(const MixtureOfExpertsOptions& options) {
  checked(feed_forward_options(checked(options)));
  const std::int64_t dim = options.dim;
  const std::int64_t attention = 2 * dim * dim + 2 * dim * options.kv_heads * head_dim(options);
  const std::int64_t matrices = options.expert == ExpertKind::kSwiGlu ? 3 : 2;
  const std::int64_t experts = options.top_k_experts * matrices * dim * options.ffn_dim;
  const std::int64_t block = attention + options.experts * dim + experts + 2 * dim;
  return 2 * options.vocab_size * dim + options.layers * block + dim;
}

// Named sizes of the mixture of experts.
const std::vector<MixtureOfExpertsPreset>& mixture_of_experts_presets() {
  static const std::vector<MixtureOfExpertsPreset> presets = {
      {.name = "small",
       .description = "small enough to train on a CPU: 8 experts, 2 for each token",
       .options = {}},
      {.name = "tiny",
       .description = "for tests: sizes that divide badly",
       .options = {.layers = 2,
                   .vocab_size = 61,
                   .max_seq_len = 24,
                   .dim = 12,
                   .heads = 2,
                   .kv_heads = 1,
                   .ffn_dim = 10,
                   .experts = 5}},
      {.name = "small-16e",
       .description = "small with 16 experts of half the width, 4 for each token",
       .options = {.ffn_dim = 128, .experts = 16, .top_k_experts = 4}},
      {.name = "mixtral-8x7b",
       .description = "Mixtral (Jiang et al., 2024), 46.7 billion parameters, 12.9 for each token",
       .options = {.layers = 32,
                   .vocab_size = 32000,
                   .max_seq_len = 32768,
                   .dim = 4096,
                   .heads = 32,
                   .kv_heads = 8,
                   .ffn_dim = 14336,
                   .balance_loss = 0.02,
                   .rotary_base = 1e6}},
  };
  return presets;
}

const MixtureOfExpertsPreset& mixture_of_experts_preset(std::string_view name) {
  return preset_named("models.mixture_of_experts", mixture_of_experts_presets(), name);
}

}  // namespace tessera::models
