#pragma once

/// A decoder-only language model whose feed-forward layers are mixtures of experts, with the
/// architecture of Mixtral (Jiang et al., "Mixtral of experts", 2024).
///
///     tokens [batch, length] of integers in [0, vocab_size), length <= max_seq_len
///     h      = dropout(token_embedding(tokens))
///     block:   h = h + dropout(attention(attention_norm(h)))        rotary, grouped heads, causal
///              h = h + dropout(feed_forward(ffn_norm(h)))           expert_layers.h
///     logits = head(norm(h)) [batch, length, vocab_size], in f32 at least
///
/// The auxiliary loss is the sum over the blocks; there is none in evaluation.
///
///     token_embedding  dropout
///     blocks.<i>      attention_norm  attention  resid_dropout  ffn_norm
///                     feed_forward (router, experts.<e> (gate, up, down))
///     norm  head
///
/// No biases. Matrices start normal with standard deviation 0.02; those that write to the residual
/// stream (attention.out_proj, down of experts) with 0.02 / sqrt(2 layers), as in GPT-2.
///
/// The constructor allocates nothing: call initialize. To use several ranks, call parallelize()
/// (parallelize.h), or share_batch() and split_experts() by hand. Otherwise every rank is
/// independent.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/nets/expert_layers.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/layers/transformer/rotary_embedding.h"

namespace tessera::models {

/// All extents must be at least 1.
struct MixtureOfExpertsOptions {
  std::int64_t layers = 4;
  std::int64_t vocab_size = 256;
  std::int64_t max_seq_len = 256;
  std::int64_t dim = 128;  ///< a multiple of heads; a head has an even number of features
  std::int64_t heads = 4;  ///< query heads; a multiple of kv_heads
  std::int64_t kv_heads = 2;
  std::int64_t ffn_dim = 256;  ///< width inside each expert
  std::int64_t experts = 8;
  std::int64_t top_k_experts = 2;  ///< experts per token
  ExpertKind expert = ExpertKind::kSwiGlu;
  /// If top_k_experts is 1 the weight is then always 1, and the router learns only from the auxiliary loss.
  bool normalize_weights = true;
  double capacity_factor = 0;  ///< 0 or infinity: no token is dropped
  double balance_loss = 0.01;  ///< weight of the loss that spreads tokens over experts
  double z_loss = 0;           ///< weight of the loss that keeps the router's logits small
  double dropout = 0;          ///< of embeddings, attention probabilities and both residuals
  double norm_eps = 1e-5;
  double rotary_base = 10000;
  DType dtype = DType::kF32;
};

struct MixtureOfExpertsBlockResult {
  Variable hidden;
  Variable auxiliary_loss = {};

  template <class F>
  void visit_tensors(F&& f) {
    f(hidden, auxiliary_loss);
  }
};

class MixtureOfExpertsBlock final : public nn::Layer<MixtureOfExpertsBlock> {
 public:
  MixtureOfExpertsBlock(const MixtureOfExpertsOptions& options,
                        std::shared_ptr<nn::RotaryEmbedding> rotary);
  /// x [batch, length, dim]; `call`: options of attention.
  MixtureOfExpertsBlockResult forward(const Variable& x, const nn::AttentionForwardOptions& call);

  MixtureFeedForward& feed_forward() { return feed_forward_; }

 private:
  nn::RMSNorm attention_norm_;
  nn::MultiheadAttention attention_;
  nn::Dropout resid_dropout_;
  nn::RMSNorm ffn_norm_;
  MixtureFeedForward feed_forward_;
};

class MixtureOfExperts final : public nn::Layer<MixtureOfExperts> {
 public:
  using Options = MixtureOfExpertsOptions;
  /// Throws InvalidArgument for extents below their minimum; also the errors of its layers.
  explicit MixtureOfExperts(const MixtureOfExpertsOptions& options = {});

  /// Batch may be 0. Throws InvalidArgument for tokens that have not 2 dims, and for more than
  /// max_seq_len positions together with those in the cache; also the errors of Embedding.
  LanguageModelResult forward(const Variable& tokens, const DecodeCall& call = {});

  /// What the head computes logits from, norm included: [batch, length, dim], for a head of your own,
  /// and the auxiliary loss of all blocks. Takes the tokens as forward does, and runs the model's hooks, so a sharded model works too.
  MixtureOfExpertsBlockResult hidden(const Variable& tokens, const DecodeCall& call = {});

  /// From now on the ranks along the axis ("": the mesh's only one) share one batch: tokens are
  /// counted over all of them. Throws InvalidArgument for a null mesh and an unknown axis.
  void share_batch(std::shared_ptr<const nn::Mesh> mesh, std::string axis = {});
  /// From now on the ranks along the axis, which share the batch, each have a part of the experts.
  /// Call it once, before the parameters are sharded; otherwise throws StateError. Throws the
  /// errors of share_batch, too.
  void split_experts(std::shared_ptr<const nn::Mesh> mesh, std::string axis = {});

  const MixtureOfExpertsOptions& options() const { return options_; }
  std::int64_t vocab_size() const { return options_.vocab_size; }
  std::int64_t max_length() const { return options_.max_seq_len; }
  std::int64_t cached_layers() const { return options_.layers; }
  /// The blocks, in order: sharding makes a group of each.
  std::vector<std::reference_wrapper<MixtureOfExpertsBlock>> blocks() {
    return blocks_.as<MixtureOfExpertsBlock>();
  }

 private:
  MixtureOfExpertsBlockResult hidden_states(const Variable& tokens, const DecodeCall& call);

  MixtureOfExpertsOptions options_;
  nn::Embedding token_embedding_;
  nn::Dropout dropout_;
  nn::ModuleList blocks_;
  nn::RMSNorm norm_;
  nn::Linear head_;
};

/// The number of parameter elements that one token is computed with: all but those of the experts
/// that it does not go to. For FLOP counts. parameters() has all elements.
std::int64_t active_parameters(const MixtureOfExpertsOptions& options);

/// A named size of the model.
struct MixtureOfExpertsPreset {
  const char* name;
  const char* description;
  MixtureOfExpertsOptions options;
};
/// All presets, the default one first.
const std::vector<MixtureOfExpertsPreset>& mixture_of_experts_presets();
/// Throws InvalidArgument for an unknown name, listing the known ones.
const MixtureOfExpertsPreset& mixture_of_experts_preset(std::string_view name);

}  // namespace tessera::models
