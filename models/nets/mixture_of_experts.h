#pragma once

/// A decoder-only language model whose feed-forward layers are mixtures of experts, of the
/// architecture of Mixtral (Jiang et al., "Mixtral of experts", 2024).
///
///     tokens [batch, length] of integers in [0, vocab_size), length <= max_seq_len
///     h      = dropout(token_embedding(tokens))
///     block:   h = h + dropout(attention(attention_norm(h)))        rotary, grouped heads, causal
///              h = h + dropout(feed_forward(ffn_norm(h)))           expert_layers.h
///     logits = head(norm(h)) [batch, length, vocab_size], in f32 at least
///
/// The auxiliary loss is the sum of the blocks'; in evaluation there is none.
///
///     token_embedding  dropout
///     blocks.<i>      attention_norm  attention  resid_dropout  ffn_norm
///                     feed_forward (router, experts.<e> (gate, up, down))
///     norm  head
///
/// No biases. Matrices start normal with deviation 0.02, those that write to the residual stream
/// (attention.out_proj, down of experts) with 0.02 / sqrt(2 n_layers), as in GPT-2.
///
/// Constructing allocates nothing: initialize it. Over ranks: parallelize() of parallelize.h, or
/// share_batch() and split_experts() by hand. Without a call every rank is alone.

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
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/module_list.h"
#include "tessera/nn/layers/rms_norm.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/layers/transformer/rotary_embedding.h"

namespace tessera::models {

/// All extents at least 1.
struct MixtureOfExpertsOptions {
  std::int64_t n_layers = 4;
  std::int64_t vocab_size = 256;
  std::int64_t max_seq_len = 256;
  std::int64_t dim = 128;    ///< a multiple of n_heads; a head's features are an even number
  std::int64_t n_heads = 4;  ///< of the queries; a multiple of n_kv_heads
  std::int64_t n_kv_heads = 2;
  std::int64_t ffn_dim = 256;  ///< inside each expert
  std::int64_t n_experts = 8;
  std::int64_t top_k = 2;  ///< experts of a token
  ExpertKind expert = ExpertKind::kSwiGlu;
  /// With top_k 1 the weight is then always 1, and the router learns from the auxiliary loss alone.
  bool normalize_weights = true;
  double capacity_factor = 0;  ///< 0 or infinity: no token is refused
  double balance_loss_weight = 0.01;
  double z_loss_weight = 0;
  double dropout_p = 0;  ///< of embeddings, attention probabilities and both residuals
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
  /// x [batch, length, dim]; `call` says what attention takes besides.
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
  /// Throws InvalidArgument for extents below what the options say, and as its layers do.
  explicit MixtureOfExperts(const MixtureOfExpertsOptions& options = {});

  /// Batch may be 0. Throws InvalidArgument for tokens that have not 2 dims or more than
  /// max_seq_len positions together with those of the cache, and as Embedding does.
  LanguageModelResult forward(const Variable& tokens, const DecodeCall& call = {});

  /// The ranks along the axis ("": the mesh's only one) have one batch together from now on: tokens
  /// are counted over all of them. Throws InvalidArgument for a null mesh, and an axis that it has
  /// not.
  void share_batch(std::shared_ptr<const nn::Mesh> mesh, std::string axis = {});
  /// The ranks along the axis, which share the batch, have the experts together from now on.
  /// Before the parameters are sharded, and once: else StateError. Throws as share_batch.
  void split_experts(std::shared_ptr<const nn::Mesh> mesh, std::string axis = {});

  const MixtureOfExpertsOptions& options() const { return options_; }
  std::int64_t vocab_size() const { return options_.vocab_size; }
  std::int64_t max_length() const { return options_.max_seq_len; }
  std::int64_t cached_layers() const { return options_.n_layers; }
  /// The blocks, in order: what a sharding layer makes groups of.
  std::vector<std::reference_wrapper<MixtureOfExpertsBlock>> blocks() {
    return blocks_.as<MixtureOfExpertsBlock>();
  }

 private:
  MixtureOfExpertsOptions options_;
  nn::Embedding token_embedding_;
  nn::Dropout dropout_;
  nn::ModuleList blocks_;
  nn::RMSNorm norm_;
  nn::Linear head_;
};

/// Elements of the parameters that one token is computed with: all but those of the experts that it
/// does not go to. For counts of operations; all elements are those of `parameters()`.
std::int64_t active_parameters(const MixtureOfExpertsOptions& options);

/// A named size of the model.
struct MixtureOfExpertsPreset {
  const char* name;
  const char* description;
  MixtureOfExpertsOptions options;
};
/// All presets, the default one first.
const std::vector<MixtureOfExpertsPreset>& mixture_of_experts_presets();
/// Throws InvalidArgument for an unknown name, listing those there are.
const MixtureOfExpertsPreset& mixture_of_experts_preset(std::string_view name);

}  // namespace tessera::models
