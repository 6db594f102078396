#pragma once

/// A layer of a transformer's encoder, or of a model that only has one stream (with is_causal: a
/// decoder-only model): self attention and two linear layers, each with a residual connection.
///
///     norm_first = false: x = norm1(x + attention(x)),   x = norm2(x + ff(x))
///     norm_first = true:  x = x + attention(norm1(x)),   x = x + ff(norm2(x))
///     ff(x) = dropout2(linear2(dropout(activation(linear1(x)))));  attention ends in dropout1
///
/// A sum and the norm of it are one call of the norm, which makes them in one kernel.
///
///     src [batch, length, dim], or [length, dim] without a batch -> the same shape
///
/// Children and initial values as PyTorch's nn.TransformerEncoderLayer: self_attn, linear1,
/// dropout, linear2, norm1, norm2, dropout1, dropout2. Derivative: once, for attention's sake.

#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/transformer_layer.h"

namespace tessera::nn {

class TransformerEncoderLayer final : public Layer<TransformerEncoderLayer> {
 public:
  using Options = TransformerLayerOptions;
  /// Throws InvalidArgument when extents or dropout are outside what the options say.
  explicit TransformerEncoderLayer(const TransformerLayerOptions& options);
  TransformerEncoderLayer(int, int, const auto&...) = delete;  ///< {.dim = 64, .heads = 4}

  /// Throws InvalidArgument for inputs and masks that MultiheadAttention refuses.
  Variable forward(const Variable& src, const TransformerMask& src_mask = {});

 private:
  Variable attend(const Variable& x, const TransformerMask& mask);
  Variable feed_forward(const Variable& x);

  TransformerActivation activation_;
  bool batch_first_;
  bool norm_first_;
  MultiheadAttention self_attn_;
  Linear linear1_;
  Dropout dropout_;
  Linear linear2_;
  LayerNorm norm1_, norm2_;
  Dropout dropout1_, dropout2_;
};

}  // namespace tessera::nn
