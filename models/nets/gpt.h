#pragma once

/// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019): a
/// decoder-only pre-norm Transformer with learned positions.
///
///     tokens [batch, length] of integers in [0, vocab_size), length <= max_seq_len
///     h      = dropout(token_embedding(tokens) + position_embedding(0 ... length - 1))
///     h      = block(h), layers times (token_model.h), causal
///     logits = head(norm(h)) [batch, length, vocab_size]
///
/// Children: token_embedding, position_embedding, dropout, blocks.<i>, norm, head (without bias).
/// (vocab_size + max_seq_len + 2) dim + layers (12 dim^2 + 13 dim) elements; vocab_size dim more
/// without weight tying.
/// Initial values are GPT-2's: normal with standard deviation 0.02, or 0.02 / sqrt(2 layers) for
/// products that are added to the residual stream (out_proj, down), so that the sum over the layers
/// does not grow with their number; biases 0, norms 1 and 0. The constructor allocates nothing:
/// call initialize.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"

namespace tessera::models {

/// All extents must be at least 1.
struct GptOptions {
  std::int64_t layers = 2;
  std::int64_t vocab_size = 8;
  std::int64_t max_seq_len = 16;
  std::int64_t dim = 16;  ///< a multiple of heads; the feed-forward part is 4 times as wide
  std::int64_t heads = 4;
  double dropout = 0;        ///< of embeddings, attention probabilities and both residuals
  bool weight_tying = true;  ///< head.weight is token_embedding.weight, under that name
  DType dtype = DType::kF32;
};

/// A named size of the model.
struct GptPreset {
  const char* name;
  const char* description;
  GptOptions options;
};
/// All presets, the default one first.
const std::vector<GptPreset>& gpt_presets();
/// Throws InvalidArgument for an unknown name, listing the known ones.
const GptPreset& gpt_preset(std::string_view name);

class Gpt final : public nn::Layer<Gpt> {
 public:
  using Options = GptOptions;
  /// Throws InvalidArgument, with their names, for extents below 1 and a dim that is not a multiple
  /// of heads.
  explicit Gpt(const GptOptions& options = {});

  /// Batch may be 0. With a cache, positions continue after it. Throws InvalidArgument for tokens
  /// that have not 2 dims and for positions of max_seq_len or more; also the errors of Embedding.
  Variable forward(const Variable& tokens, const DecodeCall& call = {});

  /// What the head computes logits from, norm included: [batch, length, dim], for a head of your own.
  /// Takes the tokens as forward does, and runs the model's hooks, so a sharded model works too.
  Variable hidden(const Variable& tokens, const DecodeCall& call = {});

  const GptOptions& options() const { return options_; }
  std::int64_t vocab_size() const { return options_.vocab_size; }
  std::int64_t max_length() const { return options_.max_seq_len; }
  std::int64_t cached_layers() const { return options_.layers; }
  /// The blocks, in order: sharding makes a group of each.
  std::vector<std::reference_wrapper<PreNormBlock>> blocks() { return blocks_.as<PreNormBlock>(); }

 private:
  Variable hidden_states(const Variable& tokens, const DecodeCall& call);

  GptOptions options_;
  nn::Embedding token_embedding_, position_embedding_;
  nn::Dropout dropout_;
  nn::ModuleList blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

}  // namespace tessera::models
