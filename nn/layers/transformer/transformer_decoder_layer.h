#pragma once

/// A layer of a transformer's decoder: self attention, attention to the encoder's result, and two
/// linear layers, each with a residual connection.
///
///     norm_first = false: x = norm1(x + self(x)), x = norm2(x + cross(x)), x = norm3(x + ff(x))
///     norm_first = true:  x = x + self(norm1(x)), x = x + cross(norm2(x)), x = x + ff(norm3(x))
///     ff(x) = dropout3(linear2(dropout(activation(linear1(x)))))
///     self ends in dropout1; cross(x) = dropout2(attention of x to memory)
///
/// A sum and the norm of it are one call of the norm, which makes them in one kernel.
///
///     tgt [batch, length, dim], memory [batch, memory length, dim], or both without a batch
///     -> tgt's shape
///
/// Children and initial values as PyTorch's nn.TransformerDecoderLayer: self_attn, multihead_attn,
/// linear1, dropout, linear2, norm1, norm2, norm3, dropout1, dropout2, dropout3. Derivative: once,
/// for attention's sake.

#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/transformer_layer.h"

namespace tessera::nn {

/// What a decoder's queries may not see: of the targets, and of the memory. Holds no Variables.
struct TransformerDecoderMasks {
  TransformerMask tgt = {};
  TransformerMask memory = {};
};
template <>
inline constexpr bool holds_no_tensors<TransformerDecoderMasks> = true;

class TransformerDecoderLayer final : public Layer<TransformerDecoderLayer> {
 public:
  using Options = TransformerLayerOptions;
  /// Throws InvalidArgument when extents or dropout are outside what the options say.
  explicit TransformerDecoderLayer(const TransformerLayerOptions& options);
  TransformerDecoderLayer(int, int, const auto&...) = delete;  ///< {.dim = 64, .heads = 4}

  /// Throws InvalidArgument for inputs and masks that MultiheadAttention refuses.
  Variable forward(const Variable& tgt, const Variable& memory,
                   const TransformerDecoderMasks& masks = {});

 private:
  Variable attend_to_self(const Variable& x, const TransformerMask& mask);
  Variable attend_to_memory(const Variable& x, const Variable& memory, const TransformerMask& mask);
  Variable feed_forward(const Variable& x);

  TransformerActivation activation_;
  bool batch_first_;
  bool norm_first_;
  MultiheadAttention self_attn_;
  MultiheadAttention multihead_attn_;
  Linear linear1_;
  Dropout dropout_;
  Linear linear2_;
  LayerNorm norm1_, norm2_, norm3_;
  Dropout dropout1_, dropout2_, dropout3_;
};

}  // namespace tessera::nn
