#pragma once

/// A small decoder-only pre-norm Transformer with learned positions: the model of the sharding
/// tests.
///
///     tokens [batch, length] of integers in [0, vocab_size), length <= max_seq_len
///     h      = dropout(tok_embeddings(tokens) + pos_embeddings(0 ... length - 1))
///     block:   h = h + attention(attention_norm(h));  h = h + feed_forward(ffn_norm(h))
///     logits = output(norm(h)) [batch, length, vocab_size]
///
/// Names, registration order and sizes are those of the Transformer in PyTorch's distributed tests,
/// so that the counts of those tests hold here:
///
///     tok_embeddings  pos_embeddings  dropout
///     layers.<i>      attention_norm  attention    (resid_dropout wq wk wv wo, without bias)
///                     ffn_norm        feed_forward (w1 gelu w2 resid_dropout)
///     norm  output
///
/// 7 + 14 layers modules; (vocab_size + max_seq_len + 2) dim + layers (12 dim^2 + 9 dim)
/// elements, vocab_size dim more without weight tying. Initial values are PyTorch's defaults. The
/// constructor allocates nothing: call initialize.
///
/// A language model as defined in language_model.h. It can decode token by token only if
/// use_attn_mask is set.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/key_value_cache.h"
#include "tessera/nn/visit.h"

namespace tessera::models {

/// All extents must be at least 1, layers at least 0.
struct ModelArgs {
  int layers = 2;
  std::int64_t vocab_size = 8;
  std::int64_t max_seq_len = 16;
  std::int64_t dim = 16;  ///< a multiple of heads
  std::int64_t heads = 4;
  double dropout = 0.1;       ///< of embeddings, attention probabilities and both residuals
  bool use_attn_mask = true;  ///< causal: a position attends to itself and to earlier ones
  bool weight_tying = true;   ///< output.weight is tok_embeddings.weight, under that name
  bool checkpoint_activations = false;  ///< each block is recomputed in backward
  DType dtype = DType::kF32;
};

/// A named size of the model.
struct TransformerPreset {
  const char* name;
  const char* description;
  ModelArgs options;
};
/// All presets, the default one first.
const std::vector<TransformerPreset>& transformer_presets();
/// Throws InvalidArgument for an unknown name, listing the known ones.
const TransformerPreset& transformer_preset(std::string_view name);

/// The arguments of attention, and of a block, besides the input.
struct AttentionCall {
  /// Appends the new keys and values; the queries attend to the earlier ones, too. Not owned.
  nn::KeyValueCache* cache = nullptr;
};

/// Causal self attention: x [batch, length, dim] -> the same shape.
class Attention final : public nn::Layer<Attention> {
 public:
  using Options = ModelArgs;
  explicit Attention(const ModelArgs& args);
  /// Throws InvalidArgument unless x has 3 dims and ends in `dim`.
  Variable forward(const Variable& x, const AttentionCall& call = {});

 private:
  Variable split_heads(const Variable& x) const;

  // The number of heads is not stored: it follows from the width of the projections' results, so a
  // rank that holds some of their rows computes its own heads.
  std::int64_t head_dim_;
  double dropout_p_;
  bool causal_;
  nn::Dropout resid_dropout_;
  nn::Linear wq_, wk_, wv_, wo_;
};

/// dropout(w2(gelu(w1(x)))), four times as wide inside.
class FeedForward final : public nn::Layer<FeedForward> {
 public:
  using Options = ModelArgs;
  explicit FeedForward(const ModelArgs& args);
  Variable forward(const Variable& x);

 private:
  nn::Linear w1_;
  nn::GELU gelu_;
  nn::Linear w2_;
  nn::Dropout resid_dropout_;
};

class TransformerBlock final : public nn::Layer<TransformerBlock> {
 public:
  using Options = ModelArgs;
  explicit TransformerBlock(const ModelArgs& args);
  Variable forward(const Variable& x, const AttentionCall& call = {});

 private:
  nn::LayerNorm attention_norm_;
  Attention attention_;
  nn::LayerNorm ffn_norm_;
  FeedForward feed_forward_;
};

class Transformer final : public nn::Layer<Transformer> {
 public:
  using Options = ModelArgs;
  /// Throws InvalidArgument, with their names, for extents below their minimum and a dim that is
  /// not a multiple of heads.
  explicit Transformer(const ModelArgs& args = {});

  /// Batch may be 0. With a cache, positions continue after it. Throws InvalidArgument for tokens
  /// that have not 2 dims, positions of max_seq_len or more, and a cache if use_attn_mask is not
  /// set; also the errors of Embedding.
  Variable forward(const Variable& tokens, const DecodeCall& call = {});
  Variable forward(const Tensor& tokens, const DecodeCall& call = {}) {
    return forward(Variable(tokens), call);
  }

  /// What the head computes logits from, norm included: [batch, length, dim], for a head of your own.
  /// Takes the tokens as forward does, and runs the model's hooks, so a sharded model works too.
  Variable hidden(const Variable& tokens, const DecodeCall& call = {});

  const ModelArgs& options() const { return args_; }
  std::int64_t vocab_size() const { return args_.vocab_size; }
  std::int64_t max_length() const { return args_.max_seq_len; }
  std::int64_t cached_layers() const { return args_.layers; }
  /// The blocks, in order: sharding makes a group of each.
  std::vector<std::reference_wrapper<TransformerBlock>> blocks() {
    return layers_.as<TransformerBlock>();
  }

 private:
  Variable hidden_states(const Variable& tokens, const DecodeCall& call);

  ModelArgs args_;
  nn::Embedding tok_embeddings_, pos_embeddings_;
  nn::Dropout dropout_;
  nn::ModuleList layers_;
  nn::LayerNorm norm_;
  nn::Linear output_;
};

}  // namespace tessera::models

template <>
inline constexpr bool tessera::nn::holds_no_tensors<tessera::models::AttentionCall> = true;
