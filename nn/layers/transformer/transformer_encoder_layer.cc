#include "tessera/nn/layers/transformer/transformer_encoder_layer.h"

#include "tessera/autograd/ops/ops.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.TransformerEncoderLayer";

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerLayerOptions& options)
    : activation_(detail::checked_layer_options(kWhere, options).activation),
      batch_first_(options.batch_first),
      norm_first_(options.norm_first),
      self_attn_(detail::attention_options(options)),
      linear1_(detail::widening_options(options)),
      dropout_({.p = options.dropout}),
      linear2_(detail::narrowing_options(options)),
      norm1_(detail::norm_options(options)),
      norm2_(detail::norm_options(options)),
      dropout1_({.p = options.dropout}),
      dropout2_({.p = options.dropout}) {
  register_module("self_attn", self_attn_);
  register_module("linear1", linear1_);
  register_module("dropout", dropout_);
  register_module("linear2", linear2_);
  register_module("norm1", norm1_);
  register_module("norm2", norm2_);
  register_module("dropout1", dropout1_);
  register_module("dropout2", dropout2_);
}

Variable TransformerEncoderLayer::attend(const Variable& x, const TransformerMask& mask) {
  return dropout1_(self_attn_(x, detail::attention_call(mask)).output);
}

Variable TransformerEncoderLayer::feed_forward(const Variable& x) {
  return dropout2_(linear2_(dropout_(detail::activate(activation_, linear1_(x)))));
}

Variable TransformerEncoderLayer::forward(const Variable& src, const TransformerMask& src_mask) {
  Variable x = detail::to_batch_first(kWhere, src, batch_first_);
  if (norm_first_) {
    const AddNorm h = norm2_(x, attend(norm1_(x), src_mask));
    x = h.sum + feed_forward(h.y);
  } else {
    x = norm1_(x, attend(x, src_mask)).y;
    x = norm2_(x, feed_forward(x)).y;
  }
  return detail::from_batch_first(x, batch_first_);
}

}  // namespace tessera::nn
