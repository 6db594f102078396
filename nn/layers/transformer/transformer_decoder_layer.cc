#include "tessera/nn/layers/transformer/transformer_decoder_layer.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.TransformerDecoderLayer";

}  // namespace

TransformerDecoderLayer::TransformerDecoderLayer(const TransformerLayerOptions& options)
    : activation_(detail::checked_layer_options(kWhere, options).activation),
      batch_first_(options.batch_first),
      norm_first_(options.norm_first),
      self_attn_(detail::attention_options(options)),
      multihead_attn_(detail::attention_options(options)),
      linear1_(detail::widening_options(options)),
      dropout_({.p = options.dropout}),
      linear2_(detail::narrowing_options(options)),
      norm1_(detail::norm_options(options)),
      norm2_(detail::norm_options(options)),
      norm3_(detail::norm_options(options)),
      dropout1_({.p = options.dropout}),
      dropout2_({.p = options.dropout}),
      dropout3_({.p = options.dropout}) {
  register_module("self_attn", self_attn_);
  register_module("multihead_attn", multihead_attn_);
  register_module("linear1", linear1_);
  register_module("dropout", dropout_);
  register_module("linear2", linear2_);
  register_module("norm1", norm1_);
  register_module("norm2", norm2_);
  register_module("norm3", norm3_);
  register_module("dropout1", dropout1_);
  register_module("dropout2", dropout2_);
  register_module("dropout3", dropout3_);
}

Variable TransformerDecoderLayer::attend_to_self(const Variable& x, const TransformerMask& mask) {
  return dropout1_(self_attn_(x, detail::attention_call(mask)).output);
}

Variable TransformerDecoderLayer::attend_to_memory(const Variable& x, const Variable& memory,
                                                   const TransformerMask& mask) {
  return dropout2_(multihead_attn_(x, memory, memory, detail::attention_call(mask)).output);
}

Variable TransformerDecoderLayer::feed_forward(const Variable& x) {
  return dropout3_(linear2_(dropout_(detail::activate(activation_, linear1_(x)))));
}

Variable TransformerDecoderLayer::forward(const Variable& tgt, const Variable& memory,
                                          const TransformerDecoderMasks& masks) {
  Variable x = detail::to_batch_first(kWhere, tgt, batch_first_);
  const Variable from = detail::to_batch_first(kWhere, memory, batch_first_);
  TESSERA_CHECK(tgt.ndim() == memory.ndim(), kWhere,
                "tgt has shape {} and memory {}; both have a batch, or neither", tgt.shape().str(),
                memory.shape().str());
  if (norm_first_) {
    AddNorm h = norm2_(x, attend_to_self(norm1_(x), masks.tgt));
    h = norm3_(h.sum, attend_to_memory(h.y, from, masks.memory));
    x = h.sum + feed_forward(h.y);
  } else {
    x = norm1_(x, attend_to_self(x, masks.tgt)).y;
    x = norm2_(x, attend_to_memory(x, from, masks.memory)).y;
    x = norm3_(x, feed_forward(x)).y;
  }
  return detail::from_batch_first(x, batch_first_);
}

}  // namespace tessera::nn
