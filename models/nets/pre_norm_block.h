#pragma once

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

#include <cstdint>

#include "tessera/autograd/variable.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/layer_norm.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/transformer/attention.h"

namespace tessera::models {

struct PreNormBlockOptions {
  std::int64_t dim = 0;      ///< required, a multiple of n_heads
  std::int64_t n_heads = 0;  ///< required
  std::int64_t ffn_dim = 0;  ///< features between the two linear layers; required
  double dropout_p = 0.1;    ///< of attention probabilities and of both added results
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
