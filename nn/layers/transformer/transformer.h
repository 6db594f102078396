#pragma once

/// Stacks of transformer layers, and the encoder-decoder of "Attention Is All You Need" (Vaswani et
/// al., 2017), as PyTorch's nn.Transformer. Embeddings, positions and the head are the caller's.
///
///     nn::Transformer model({.layer = {.dim = 64, .heads = 4}, .encoder_layers = 2,
///                            .decoder_layers = 2});
///     y = model(src, tgt, nn::TransformerMasks{.src = {.key_padding_mask = padding},
///                                              .tgt = {.is_causal = true},
///                                              .memory = {.key_padding_mask = padding}});
///
///     src [batch, length, dim], tgt [batch, tgt length, dim] -> tgt's shape
///
/// Inputs may lack the batch, all or none.
///
/// Children: "layers.0", "layers.1", ... and "norm" of a stack; "encoder" and "decoder" of a
/// Transformer, which starts all its matrices xavier_uniform, each by its own shape. Unlike
/// PyTorch's: a stack builds its layers, each with initial values of its own, where PyTorch's
/// copies one; options of a layer stand in `.layer`; a mask that happens to be causal is not
/// recognised (say is_causal). Left out: custom_encoder and custom_decoder (call the stacks in a
/// layer of your own), enable_nested_tensor and mask_check, which choose a fast path.

#include <cstdint>
#include <optional>

#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/transformer/attention_mask.h"
#include "tessera/nn/layers/transformer/transformer_decoder_layer.h"
#include "tessera/nn/layers/transformer/transformer_encoder_layer.h"

namespace tessera::nn {

/// Of an encoder or a decoder.
struct TransformerStackOptions {
  TransformerLayerOptions layer = {};
  std::int64_t num_layers = 0;  ///< required, >= 1
  bool norm = false;            ///< a LayerNorm at the end
};

class TransformerEncoder final : public Layer<TransformerEncoder> {
 public:
  using Options = TransformerStackOptions;
  /// Throws InvalidArgument for num_layers below 1, and as TransformerEncoderLayer.
  explicit TransformerEncoder(const TransformerStackOptions& options);

  Variable forward(const Variable& src, const TransformerMask& src_mask = {});

 private:
  ModuleList layers_;
  std::optional<LayerNorm> norm_;
};

class TransformerDecoder final : public Layer<TransformerDecoder> {
 public:
  using Options = TransformerStackOptions;
  /// Throws InvalidArgument for num_layers below 1, and as TransformerDecoderLayer.
  explicit TransformerDecoder(const TransformerStackOptions& options);

  Variable forward(const Variable& tgt, const Variable& memory,
                   const TransformerDecoderMasks& masks = {});

 private:
  ModuleList layers_;
  std::optional<LayerNorm> norm_;
};

struct TransformerOptions {
  TransformerLayerOptions layer = {.dim = 512, .heads = 8};
  std::int64_t encoder_layers = 6;
  std::int64_t decoder_layers = 6;
};

/// Of the encoder's attention, the decoder's own, and the decoder's to the memory. Holds no
/// Variables.
struct TransformerMasks {
  TransformerMask src = {};
  TransformerMask tgt = {};
  TransformerMask memory = {};
};
template <>
inline constexpr bool holds_no_tensors<TransformerMasks> = true;

class Transformer final : public Layer<Transformer> {
 public:
  using Options = TransformerOptions;
  /// Throws as the stacks.
  explicit Transformer(const TransformerOptions& options = {});

  /// Throws InvalidArgument when src and tgt differ in batch or dim, and for masks that
  /// MultiheadAttention refuses.
  Variable forward(const Variable& src, const Variable& tgt, const TransformerMasks& masks = {});

  TransformerEncoder& encoder() { return encoder_; }
  TransformerDecoder& decoder() { return decoder_; }

 private:
  int batch_dim_;
  TransformerEncoder encoder_;
  TransformerDecoder decoder_;
};

}  // namespace tessera::nn
