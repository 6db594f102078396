#include "tessera/models/nets/encoder_decoder.h"

#include <cmath>

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/nn/init.h"
#include "tessera/nn/parameter.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.EncoderDecoder";

const EncoderDecoderOptions& checked(const EncoderDecoderOptions& options) {
  check_extent(kWhere, "encoder_layers", options.encoder_layers);
  check_extent(kWhere, "decoder_layers", options.decoder_layers);
  check_extent(kWhere, "vocab_size", options.vocab_size);
  check_extent(kWhere, "max_seq_len", options.max_seq_len);
  check_extent(kWhere, "ffn_dim", options.ffn_dim);
  check_heads(kWhere, options.dim, options.heads);
  return options;
}

nn::EmbeddingOptions embedding_options(const EncoderDecoderOptions& options) {
  return {.entries = options.vocab_size, .dim = options.dim, .dtype = options.dtype};
}

PositionEmbeddingOptions position_options(const EncoderDecoderOptions& options) {
  return {.max_length = options.max_seq_len,
          .dim = options.dim,
          .kind = options.positions,
          .dtype = options.dtype};
}

nn::LayerNormOptions norm_options(std::int64_t dim, DType dtype) {
  return {.shape = {dim}, .dtype = dtype};
}

PreNormBlockOptions block_options(const EncoderDecoderOptions& options) {
  return {.dim = options.dim,
          .heads = options.heads,
          .ffn_dim = options.ffn_dim,
          .dropout = options.dropout,
          .dtype = options.dtype};
}

nn::MultiheadAttentionOptions attention_options(const PreNormBlockOptions& options) {
  return {.dim = options.dim,
          .heads = options.heads,
          .dropout = options.dropout,
          .dtype = options.dtype};
}

void set_initial_values(nn::Module& model, std::int64_t dim) {
  const double deviation = 1 / std::sqrt(static_cast<double>(dim));
  for (auto& [name, parameter] : model.named_parameters()) {
    const bool is_table = name.find("_embedding.") != std::string::npos ||
                          name.find("_positions.") != std::string::npos || name == "head.weight";
    if (is_table) {
      parameter.set_init(nn::init::normal(0, deviation));
    } else if (parameter.shape().ndim() == 2) {
      parameter.set_init(nn::init::xavier_uniform());
    } else if (name.ends_with("bias")) {
      parameter.set_init(nn::init::zeros());
    }
  }
}

}  // namespace

void EncoderDecoderCache::clear() {
  target_.clear();
  source_ = {};
}

DecoderBlock::DecoderBlock(const PreNormBlockOptions& options)
    : attention_norm_(norm_options(options.dim, options.dtype)),
      attention_(attention_options(options)),
      resid_dropout_({.p = options.dropout}),
      cross_attention_norm_(norm_options(options.dim, options.dtype)),
      cross_attention_(attention_options(options)),
      cross_resid_dropout_({.p = options.dropout}),
      ffn_norm_(norm_options(options.dim, options.dtype)),
      feed_forward_(options) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("resid_dropout", resid_dropout_);
  register_module("cross_attention_norm", cross_attention_norm_);
  register_module("cross_attention", cross_attention_);
  register_module("cross_resid_dropout", cross_resid_dropout_);
  register_module("ffn_norm", ffn_norm_);
  register_module("feed_forward", feed_forward_);
}

Variable DecoderBlock::forward(const Variable& x, const Variable& memory,
                               const nn::AttentionForwardOptions& self,
                               const nn::AttentionForwardOptions& cross) {
  AddNorm h = cross_attention_norm_(x, resid_dropout_(attention_(attention_norm_(x), self).output));
  h = ffn_norm_(h.sum, cross_resid_dropout_(cross_attention_(h.y, memory, memory, cross).output));
  return h.sum + feed_forward_(h.y);
}

EncoderDecoder::EncoderDecoder(const EncoderDecoderOptions& options)
    : options_(checked(options)),
      source_embedding_(embedding_options(options)),
      target_embedding_(embedding_options(options)),
      source_positions_(position_options(options)),
      target_positions_(position_options(options)),
      dropout_({.p = options.dropout}),
      encoder_norm_(norm_options(options.dim, options.dtype)),
      decoder_norm_(norm_options(options.dim, options.dtype)),
      head_(language_head(options.dim, options.vocab_size, options.dtype)) {
  for (std::int64_t i = 0; i < options.encoder_layers; ++i)
    encoder_.add<PreNormBlock>(block_options(options));
  for (std::int64_t i = 0; i < options.decoder_layers; ++i)
    decoder_.add<DecoderBlock>(block_options(options));
  register_module("source_embedding", source_embedding_);
  register_module("target_embedding", target_embedding_);
  register_module("source_positions", source_positions_);
  register_module("target_positions", target_positions_);
  register_module("dropout", dropout_);
  register_module("encoder", encoder_);
  register_module("encoder_norm", encoder_norm_);
  register_module("decoder", decoder_);
  register_module("decoder_norm", decoder_norm_);
  register_module("head", head_);
  if (options.share_embeddings) nn::tie(source_embedding_.weight(), target_embedding_.weight());
  if (options.weight_tying) nn::tie(target_embedding_.weight(), head_.weight());
  set_initial_values(*this, options.dim);
}

EncodedSource EncoderDecoder::encode(const Variable& source, const Tensor& padding) {
  check_tokens(kWhere, source, 0, max_length());
  TESSERA_CHECK(
      !padding.defined() || (padding.dtype() == DType::kBool && padding.shape() == source.shape()),
      kWhere, "source_padding is {} {}, the source {}: it is a bool for each token",
      dtype_name(padding.dtype()), padding.shape().str(), source.shape().str());
  const double scale = std::sqrt(static_cast<double>(options_.dim));
  Variable x = dropout_(source_positions_(source_embedding_(source) * scale));
  for (PreNormBlock& block : encoder_blocks())
    x = block(x, nn::AttentionForwardOptions{.key_padding_mask = padding});
  return {.memory = encoder_norm_(x), .padding = padding};
}

Variable EncoderDecoder::decode(const Variable& target, const EncodedSource& source,
                                DecodeCache* cache) {
  const std::int64_t past = cached_length(cache);
  check_tokens(kWhere, target, past, max_length());
  TESSERA_CHECK(target.dim(0) == source.memory.dim(0), kWhere,
                "got {} targets for {} sources: one target for each", target.dim(0),
                source.memory.dim(0));
  const double scale = std::sqrt(static_cast<double>(options_.dim));
  Variable h = dropout_(target_positions_(target_embedding_(target) * scale, past));
  std::int64_t layer = 0;
  for (DecoderBlock& block : decoder_blocks()) {
    h = block(h, source.memory, causal_call(cache, layer++),
              nn::AttentionForwardOptions{.key_padding_mask = source.padding});
  }
  return head_(decoder_norm_(h));
}

Variable EncoderDecoder::forward(const Variable& source, const Variable& target,
                                 const EncoderDecoderCall& call) {
  EncoderDecoderCache* cache = call.cache;
  if (cache != nullptr && cache->source_.memory.defined()) {
    TESSERA_CHECK(!source.defined() && !call.source_padding.defined(), kWhere,
                  "the cache has a source already: go on with Variable() for the source, or clear "
                  "the cache");
    return decode(target, cache->source_, &cache->target_);
  }
  TESSERA_CHECK(source.defined(), kWhere, "expected source tokens [batch, length], got none");
  const EncodedSource encoded = encode(source, call.source_padding);
  const Variable logits = decode(target, encoded, cache != nullptr ? &cache->target_ : nullptr);
  if (cache != nullptr) cache->source_ = encoded;
  return logits;
}

namespace {

constexpr std::int64_t kBytes = 256;  // vocabulary of a byte-level tokenizer

// The paper's sizes (table 3, two rows), with the shared vocabulary of English and German.
EncoderDecoderOptions published(std::int64_t dim, std::int64_t heads, double dropout) {
  return {.encoder_layers = 6,
          .decoder_layers = 6,
          .vocab_size = 37000,
          .max_seq_len = 1024,
          .dim = dim,
          .heads = heads,
          .ffn_dim = 4 * dim,
          .dropout = dropout};
}

std::vector<EncoderDecoderPreset> make_presets() {
  return {
      {.name = "small",
       .description = "small enough to train on a CPU",
       .options = {.encoder_layers = 3,
                   .decoder_layers = 3,
                   .vocab_size = kBytes,
                   .max_seq_len = 256,
                   .dim = 192,
                   .heads = 6,
                   .ffn_dim = 768}},
      {.name = "tiny",
       .description = "for tests: a few thousand parameters",
       .options = {.encoder_layers = 2,
                   .decoder_layers = 2,
                   .vocab_size = kBytes,
                   .max_seq_len = 33,
                   .dim = 20,
                   .heads = 4,
                   .ffn_dim = 46}},
      {.name = "base",
       .description = "\"Attention is all you need\" (Vaswani et al., 2017), base",
       .options = published(512, 8, 0.1)},
      {.name = "big",
       .description = "\"Attention is all you need\" (Vaswani et al., 2017), big",
       .options = published(1024, 16, 0.3)},
  };
}

}  // namespace

const std::vector<EncoderDecoderPreset>& encoder_decoder_presets() {
  static const std::vector<EncoderDecoderPreset> presets = make_presets();
  return presets;
}

const EncoderDecoderPreset& encoder_decoder_preset(std::string_view name) {
  return preset_named("models.encoder_decoder", encoder_decoder_presets(), name);
}

}  // namespace tessera::models
