#pragma once

/// Code that the token models share: small functions, position embeddings, and the pre-norm block
/// of GPT-2 and of EncoderDecoder's encoder.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/nn/buffer.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/check.h"

namespace tessera::models {

/// Small functions that the token models share.

/// Throws InvalidArgument naming the extent if it is below `least`.
void check_extent(const char* where, const char* name, std::int64_t value, std::int64_t least = 1);
/// Throws InvalidArgument unless both are at least 1 and heads divides dim.
void check_heads(const char* where, std::int64_t dim, std::int64_t heads);
/// Throws InvalidArgument unless tokens are [batch, length] and their positions, which start at
/// `past`, are below max_length.
void check_tokens(const char* where, const Variable& tokens, std::int64_t past,
                  std::int64_t max_length);

/// Number of positions in the cache; 0 for null.
std::int64_t cached_length(const DecodeCache* cache);
/// The options of a block's self attention: causal, with the cache of the layer.
nn::AttentionForwardOptions causal_call(DecodeCache* cache, std::int64_t layer);

/// i64 [length]: past, past + 1, ... on the device of x [batch, length, ...].
Tensor positions_of(const Variable& x, std::int64_t past);

/// The options of the layer that computes logits, without a bias. Its rows begin at multiples of 16
/// bytes, whatever the vocabulary: see nn::LinearOptions::pitch.
nn::LinearOptions language_head(std::int64_t dim, std::int64_t vocab_size, DType dtype);

/// GPT-2's initial values: matrices normal with standard deviation 0.02, or 0.02 / sqrt(2 layers)
/// for those named out_proj.weight and down.weight, whose products are added to the residual
/// stream; biases of linear layers and projections 0. Norms keep their values.
void start_as_gpt2(nn::Module& model, std::int64_t layers);

/// The preset of this name. Throws InvalidArgument for an unknown name, listing the known ones.
template <class Preset>
const Preset& preset_named(const char* where, const std::vector<Preset>& presets,
                           std::string_view name) {
  std::string known;
  for (const Preset& preset : presets) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw_error<InvalidArgument>(where, "unknown preset \"{}\"; there are: {}", name, known);
}

/// Adds a position embedding to each token: a row of a trained table, or sines.
///
///     x [batch, length, dim] -> x + table[first ... first + length - 1], of x's shape and dtype
///
/// Sinusoidal (Vaswani et al., "Attention is all you need", 2017, section 3.5), for i in [0, dim /
/// 2): table[p, 2i] = sin(p / 10000^(2i / dim)), and table[p, 2i + 1] is the cosine of the same
/// angle. Learned: the child "learned", an nn::Embedding.
enum class PositionKind : std::uint8_t { kSinusoidal, kLearned };

struct PositionEmbeddingOptions {
  std::int64_t max_length = 0;  ///< required, >= 1
  std::int64_t dim = 0;         ///< required, >= 1; even if sinusoidal
  PositionKind kind = PositionKind::kSinusoidal;
  DType dtype = DType::kF32;  ///< of learned rows; sines are stored in f64 and rounded to the dtype
                              ///< of x
};

class PositionEmbedding final : public nn::Layer<PositionEmbedding> {
 public:
  using Options = PositionEmbeddingOptions;
  /// Throws InvalidArgument for extents out of range.
  explicit PositionEmbedding(const PositionEmbeddingOptions& options);

  /// Throws InvalidArgument unless x is [batch, length, dim], and for positions outside the table.
  Variable forward(const Variable& x, std::int64_t first = 0);

 private:
  std::int64_t max_length_;
  std::optional<nn::Embedding> learned_;
  std::optional<nn::Buffer> sines_;
};

/// A pre-norm block of self attention and a feed-forward part: the block of GPT-2 and of
/// EncoderDecoder's encoder.
///
///     h = x + resid_dropout(attention(attention_norm(x)))
///     y = h + feed_forward(ffn_norm(h)),  feed_forward(z) = dropout(down(gelu_tanh(up(z))))
///
///     x [batch, length, dim] -> the same shape
///
/// One call of the norm, which is one kernel, computes both h and its norm; this holds for the
/// blocks of all models here.
///
/// Attention is nn::MultiheadAttention with packed projections, all with biases. Layers have their
/// default initial values; models set their own.
struct PreNormBlockOptions {
  std::int64_t dim = 0;      ///< required, a multiple of heads
  std::int64_t heads = 0;    ///< required
  std::int64_t ffn_dim = 0;  ///< features between the two linear layers; required
  double dropout = 0.1;      ///< of attention probabilities and of both added results
  DType dtype = DType::kF32;
};

class GeluFeedForward final : public nn::Layer<GeluFeedForward> {
 public:
  using Options = PreNormBlockOptions;
  explicit GeluFeedForward(const PreNormBlockOptions& options);
  Variable forward(const Variable& x);

 private:
  nn::Linear up_, down_;
  nn::Dropout dropout_;
};

class PreNormBlock final : public nn::Layer<PreNormBlock> {
 public:
  using Options = PreNormBlockOptions;
  /// Throws the InvalidArgument errors of its layers.
  explicit PreNormBlock(const PreNormBlockOptions& options);
  /// `call`: options of attention: masks, is_causal, cache.
  Variable forward(const Variable& x, const nn::AttentionForwardOptions& call = {});

 private:
  nn::LayerNorm attention_norm_;
  nn::MultiheadAttention attention_;
  nn::Dropout resid_dropout_;
  nn::LayerNorm ffn_norm_;
  GeluFeedForward feed_forward_;
};

}  // namespace tessera::models
