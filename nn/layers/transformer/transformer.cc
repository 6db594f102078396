#include "tessera/nn/layers/transformer/transformer.h"

#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

template <class EachLayer>
void build_stack(const char* where, const TransformerStackOptions& options, ModuleList& layers,
                 std::optional<LayerNorm>& norm) {
  TESSERA_CHECK(options.num_layers >= 1, where, "num_layers is {}; it must be at least 1",
                options.num_layers);
  for (std::int64_t i = 0; i < options.num_layers; ++i) layers.add<EachLayer>(options.layer);
  if (options.norm) norm.emplace(detail::norm_options(options.layer));
}

}  // namespace

TransformerEncoder::TransformerEncoder(const TransformerStackOptions& options) {
  build_stack<TransformerEncoderLayer>("nn.TransformerEncoder", options, layers_, norm_);
  register_module("layers", layers_);
  if (norm_) register_module("norm", *norm_);
}

Variable TransformerEncoder::forward(const Variable& src, const TransformerMask& src_mask) {
  Variable x = src;
  for (TransformerEncoderLayer& layer : layers_.as<TransformerEncoderLayer>()) {
    x = layer(x, src_mask);
  }
  return norm_ ? (*norm_)(x) : x;
}

TransformerDecoder::TransformerDecoder(const TransformerStackOptions& options) {
  build_stack<TransformerDecoderLayer>("nn.TransformerDecoder", options, layers_, norm_);
  register_module("layers", layers_);
  if (norm_) register_module("norm", *norm_);
}

Variable TransformerDecoder::forward(const Variable& tgt, const Variable& memory,
                                     const TransformerDecoderMasks& masks) {
  Variable x = tgt;
  for (TransformerDecoderLayer& layer : layers_.as<TransformerDecoderLayer>()) {
    x = layer(x, memory, masks);
  }
  return norm_ ? (*norm_)(x) : x;
}

Transformer::Transformer(const TransformerOptions& options)
    : batch_dim_(options.layer.batch_first ? 0 : 1),
      encoder_({.layer = options.layer, .num_layers = options.encoder_layers, .norm = true}),
      decoder_({.layer = options.layer, .num_layers = options.decoder_layers, .norm = true}) {
  register_module("encoder", encoder_);
  register_module("decoder", decoder_);
  for (Parameter& parameter : parameters()) {
    if (parameter.shape().ndim() > 1) parameter.set_init(init::xavier_uniform());
  }
}

Variable Transformer::forward(const Variable& src, const Variable& tgt,
                              const TransformerMasks& masks) {
  const bool is_batch = src.ndim() == 3 && tgt.ndim() == 3,
             is_one = src.ndim() == 2 && tgt.ndim() == 2;
  TESSERA_CHECK((is_one || (is_batch && src.dim(batch_dim_) == tgt.dim(batch_dim_))) &&
                    src.dim(-1) == tgt.dim(-1),
                "nn.Transformer",
                "expected src and tgt [{}, dim] of one batch and one dim, or both without a batch, "
                "got {} and "
                "{}",
                batch_dim_ == 0 ? "batch, length" : "length, batch", src.shape().str(),
                tgt.shape().str());
  const Variable memory = encoder_(src, masks.src);
  return decoder_(tgt, memory, TransformerDecoderMasks{.tgt = masks.tgt, .memory = masks.memory});
}

}  // namespace tessera::nn
