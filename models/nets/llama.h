#pragma once

/// LLaMA (Touvron et al., "LLaMA: Open and efficient foundation language models", 2023; Llama 3,
/// Grattafiori et al., 2024): a decoder-only Transformer with RMSNorm, rotary positions, SwiGLU and
/// grouped key-value heads, without biases.
///
///     tokens [batch, length] of integers in [0, vocab_size), length <= max_seq_len
///     h      = dropout(token_embedding(tokens))
///     block:   h = h + resid_dropout(attention(attention_norm(h)))
///              h = h + feed_forward(ffn_norm(h))
///              feed_forward(z) = dropout(down(silu(gate(z)) * up(z)))
///     logits = head(norm(h)) [batch, length, vocab_size]
///
/// Children: token_embedding, dropout, blocks.<i>, norm, head. All blocks share one
/// nn::RotaryEmbedding, which rotates queries and keys. It pairs the two halves of a head, as
/// weights published for PyTorch do. With kv_dim = kv_heads dim / heads: vocab_size dim + dim +
/// layers (2 dim^2 + 2 dim kv_dim + 3 dim ffn_dim + 2 dim) elements; vocab_size dim more without
/// weight tying.
///
/// Initial values: matrices normal with standard deviation 0.02, or 0.02 / sqrt(2 layers) for
/// products that are added to the residual stream (out_proj, down); norms 1. The constructor
/// allocates nothing: call initialize.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
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
struct LlamaOptions {
  std::int64_t layers = 2;
  std::int64_t vocab_size = 8;
  std::int64_t max_seq_len = 16;
  std::int64_t dim = 16;  ///< heads times an even number
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;   ///< a divisor of heads
  std::int64_t ffn_dim = 48;   ///< features between the linear layers
  double rotary_base = 10000;  ///< "theta"
  double norm_eps = 1e-5;
  double dropout = 0;         ///< of embeddings, attention probabilities and both residuals
  bool weight_tying = false;  ///< head.weight is token_embedding.weight, under that name
  DType dtype = DType::kF32;
};

/// A named size of the model.
struct LlamaPreset {
  const char* name;
  const char* description;
  LlamaOptions options;
};
/// All presets, the default one first.
const std::vector<LlamaPreset>& llama_presets();
/// Throws InvalidArgument for an unknown name, listing the known ones.
const LlamaPreset& llama_preset(std::string_view name);

/// dropout(down(silu(gate(x)) * up(x))): SwiGLU (Shazeer, "GLU variants improve Transformer",
/// 2020).
class LlamaFeedForward final : public nn::Layer<LlamaFeedForward> {
 public:
  using Options = LlamaOptions;
  explicit LlamaFeedForward(const LlamaOptions& options);
  Variable forward(const Variable& x);

 private:
  nn::Linear gate_, up_, down_;
  nn::Dropout dropout_;
};

/// x [batch, length, dim] -> the same shape.
class LlamaBlock final : public nn::Layer<LlamaBlock> {
 public:
  /// `rotary` rotates queries and keys; blocks may share one.
  LlamaBlock(const LlamaOptions& options, std::shared_ptr<nn::RotaryEmbedding> rotary);
  /// `call`: options of attention.
  Variable forward(const Variable& x, const nn::AttentionForwardOptions& call = {});

 private:
  nn::RMSNorm attention_norm_;
  nn::MultiheadAttention attention_;
  nn::Dropout resid_dropout_;
  nn::RMSNorm ffn_norm_;
  LlamaFeedForward feed_forward_;
};

class Llama final : public nn::Layer<Llama> {
 public:
  using Options = LlamaOptions;
  /// Throws InvalidArgument, with their names, for extents below 1, numbers of heads that do not
  /// divide, and an odd number of features per head.
  explicit Llama(const LlamaOptions& options = {});

  /// Batch may be 0. With a cache, positions continue after it. Throws InvalidArgument for tokens
  /// that have not 2 dims and for positions of max_seq_len or more; also the errors of Embedding.
  Variable forward(const Variable& tokens, const DecodeCall& call = {});

  /// What the head computes logits from, norm included: [batch, length, dim], for a head of your own.
  /// Takes the tokens as forward does, and runs the model's hooks, so a sharded model works too.
  Variable hidden(const Variable& tokens, const DecodeCall& call = {});

  const LlamaOptions& options() const { return options_; }
  std::int64_t vocab_size() const { return options_.vocab_size; }
  std::int64_t max_length() const { return options_.max_seq_len; }
  std::int64_t cached_layers() const { return options_.layers; }
  /// The blocks, in order: sharding makes a group of each.
  std::vector<std::reference_wrapper<LlamaBlock>> blocks() { return blocks_.as<LlamaBlock>(); }

 private:
  Variable hidden_states(const Variable& tokens, const DecodeCall& call);

  LlamaOptions options_;
  nn::Embedding token_embedding_;
  nn::Dropout dropout_;
  nn::ModuleList blocks_;
  nn::RMSNorm norm_;
  nn::Linear head_;
};

}  // namespace tessera::models
