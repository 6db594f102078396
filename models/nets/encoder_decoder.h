#pragma once

/// The encoder-decoder Transformer (Vaswani et al., "Attention is all you need", 2017) from tokens
/// to logits, with pre-norm blocks: for translation and other tasks with a source.
///
///     source [batch, source length], target [batch, target length] of integers in [0, vocab_size),
///     lengths <= max_seq_len
///
///     x      = dropout(source_positions(sqrt(dim) source_embedding(source)))
///     memory = encoder_norm(encoder(x)), encoder_layers blocks (token_model.h)
///     h      = dropout(target_positions(sqrt(dim) target_embedding(target)))
///     h      = decoder(h, memory), decoder_layers blocks: causal self attention, attention to
///              memory, feed-forward
///     logits = head(decoder_norm(h)) [batch, target length, vocab_size]
/// Children: source_embedding, target_embedding, source_positions, target_positions, dropout,
/// encoder.<i>, encoder_norm, decoder.<i>, decoder_norm, head (without bias). Initial values:
/// embeddings normal with standard deviation 1 / sqrt(dim), other matrices xavier_uniform, biases
/// 0. The constructor allocates nothing: call initialize.
/// allocates nothing: initialize it.
/// Decoding one target token after another, for inference:
/// Target tokens one after the other, for inference:
///
///     EncoderDecoderCache cache(model.cached_layers());
///     logits = model(source, begin, EncoderDecoderCall{.cache = &cache});      // encodes
///     logits = model(Variable(), next, EncoderDecoderCall{.cache = &cache});   // next position

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
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/visit.h"

namespace tessera::models {

/// All extents must be at least 1.
struct EncoderDecoderOptions {
  std::int64_t encoder_layers = 2;
  std::int64_t decoder_layers = 2;
  std::int64_t vocab_size = 8;    ///< of sources and targets
  std::int64_t max_seq_len = 16;  ///< of sources and targets
  std::int64_t dim = 16;          ///< a multiple of heads
  std::int64_t heads = 4;
  std::int64_t ffn_dim = 64;  ///< features between the linear layers
  double dropout = 0.1;       ///< of embeddings, attention probabilities and residuals
  PositionKind positions = PositionKind::kSinusoidal;
  bool share_embeddings = true;  ///< target_embedding.weight is source_embedding.weight
  bool weight_tying = true;      ///< head.weight is target_embedding.weight
  DType dtype = DType::kF32;
};

/// A named size of the model.
struct EncoderDecoderPreset {
  const char* name;
  const char* description;
  EncoderDecoderOptions options;
};
/// All presets, the default one first.
const std::vector<EncoderDecoderPreset>& encoder_decoder_presets();
/// Throws InvalidArgument for an unknown name, listing the known ones.
const EncoderDecoderPreset& encoder_decoder_preset(std::string_view name);

/// The encoded source that the decoder attends to.
struct EncodedSource {
  Variable memory = {};  ///< [batch, source length, dim]; undefined: nothing has been encoded
  Tensor padding = {};   ///< EncoderDecoderCall::source_padding
};

/// The cache of one batch being decoded: the encoded source and the key-value caches of the
/// decoder's self attention. Only the rank's own thread may use it.
class EncoderDecoderCache {
 public:
  /// As in DecodeCache.
  explicit EncoderDecoderCache(std::int64_t layers, std::int64_t capacity = 64)
      : target_(layers, capacity) {}
  std::int64_t length() const { return target_.length(); }  ///< target positions so far
  void clear();

 private:
  friend class EncoderDecoder;
  DecodeCache target_;
  EncodedSource source_;
};

/// The arguments of forward besides source and target.
struct EncoderDecoderCall {
  /// Bool [batch, source length]: true marks padding, which is not attended to. Undefined: none.
  Tensor source_padding = {};
  /// The target continues the positions in the cache, which is extended by them. The first call
  /// encodes the source; later calls pass neither source nor source_padding. Only without
  /// gradients. Not owned; null: the target starts here.
  EncoderDecoderCache* cache = nullptr;
};

/// Causal self attention, cross attention to the memory and a feed-forward part. Each has a norm
/// before it, and its result is added to its input.
class DecoderBlock final : public nn::Layer<DecoderBlock> {
 public:
  using Options = PreNormBlockOptions;
  explicit DecoderBlock(const PreNormBlockOptions& options);
  /// x [batch, length, dim], memory [batch, source length, dim] -> the shape of x. `self` and
  /// `cross` are options of the two attentions.
  Variable forward(const Variable& x, const Variable& memory,
                   const nn::AttentionForwardOptions& self = {},
                   const nn::AttentionForwardOptions& cross = {});

 private:
  nn::LayerNorm attention_norm_;
  nn::MultiheadAttention attention_;
  nn::Dropout resid_dropout_;
  nn::LayerNorm cross_attention_norm_;
  nn::MultiheadAttention cross_attention_;
  nn::Dropout cross_resid_dropout_;
  nn::LayerNorm ffn_norm_;
  GeluFeedForward feed_forward_;
};

class EncoderDecoder final : public nn::Layer<EncoderDecoder> {
 public:
  using Options = EncoderDecoderOptions;
  /// Throws InvalidArgument, with their names, for extents below 1 and a dim that is not a multiple
  /// of heads.
  explicit EncoderDecoder(const EncoderDecoderOptions& options = {});

  /// Batch may be 0. Throws InvalidArgument for tokens that have not 2 dims or differ in batch,
  /// positions of max_seq_len or more, a source_padding of another shape or dtype, and a source for
  /// a cache that already has one; also the errors of Embedding.
  Variable forward(const Variable& source, const Variable& target,
                   const EncoderDecoderCall& call = {});

  std::int64_t vocab_size() const { return options_.vocab_size; }
  std::int64_t max_length() const { return options_.max_seq_len; }
  std::int64_t cached_layers() const { return options_.decoder_layers; }
  /// The blocks, in order: sharding makes a group of each.
  std::vector<std::reference_wrapper<PreNormBlock>> encoder_blocks() {
    return encoder_.as<PreNormBlock>();
  }
  std::vector<std::reference_wrapper<DecoderBlock>> decoder_blocks() {
    return decoder_.as<DecoderBlock>();
  }

 private:
  EncodedSource encode(const Variable& source, const Tensor& padding);
  Variable decode(const Variable& target, const EncodedSource& source, DecodeCache* cache);

  EncoderDecoderOptions options_;
  nn::Embedding source_embedding_, target_embedding_;
  PositionEmbedding source_positions_, target_positions_;
  nn::Dropout dropout_;
  nn::ModuleList encoder_;
  nn::LayerNorm encoder_norm_;
  nn::ModuleList decoder_;
  nn::LayerNorm decoder_norm_;
  nn::Linear head_;
};

}  // namespace tessera::models

template <>
inline constexpr bool tessera::nn::holds_no_tensors<tessera::models::EncoderDecoderCall> = true;
