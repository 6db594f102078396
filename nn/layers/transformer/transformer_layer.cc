#include "tessera/nn/layers/transformer/transformer_layer.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::detail {
namespace {

Variable activate(ActivationKind activation, const Variable& x) {
  switch (activation) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return relu(x);
    case ActivationKind::kGelu:
      return gelu(x);
    case ActivationKind::kGeluTanh:
      return gelu_tanh(x);
    case ActivationKind::kSilu:
      return silu(x);
  }
  return x;
}

}  // namespace

Variable activate(const TransformerActivation& activation, const Variable& x) {
  if (const auto* known = std::get_if<ActivationKind>(&activation)) return activate(*known, x);
  return std::get<1>(activation)(x);
}

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options) {
  return {.dim = options.dim,
          .heads = options.heads,
          .dropout = options.dropout,
          .bias = options.bias,
          .dtype = options.dtype};
}

LinearOptions widening_options(const TransformerLayerOptions& options) {
  return {
      .in = options.dim, .out = options.feedforward, .bias = options.bias, .dtype = options.dtype};
}

LinearOptions narrowing_options(const TransformerLayerOptions& options) {
  return {
      .in = options.feedforward, .out = options.dim, .bias = options.bias, .dtype = options.dtype};
}

LayerNormOptions norm_options(const TransformerLayerOptions& options) {
  return {.shape = {options.dim}, .eps = options.eps, .bias = options.bias, .dtype = options.dtype};
}

AttentionForwardOptions attention_call(const TransformerMask& mask) {
  return {.attn_mask = mask.mask,
          .key_padding_mask = mask.key_padding_mask,
          .is_causal = mask.is_causal};
}

Variable to_batch_first(const char* where, const Variable& x, bool batch_first) {
  TESSERA_CHECK(x.ndim() == 3 || x.ndim() == 2, where,
                "expected an input [{}, dim], or [length, dim] without a batch, got {}",
                batch_first ? "batch, length" : "length, batch", x.shape().str());
  return from_batch_first(x, batch_first);
}

Variable from_batch_first(const Variable& x, bool batch_first) {
  return batch_first || x.ndim() == 2 ? x : transpose(x, 0, 1);
}

const TransformerLayerOptions& checked_layer_options(const char* where,
                                                     const TransformerLayerOptions& options) {
  TESSERA_CHECK(options.feedforward >= 1, where, "feedforward is {}; it must be at least 1",
                options.feedforward);
  const auto* function = std::get_if<1>(&options.activation);
  TESSERA_CHECK(function == nullptr || *function != nullptr, where,
                "the activation is an empty function");
  return options;
}

}  // namespace tessera::nn::detail
