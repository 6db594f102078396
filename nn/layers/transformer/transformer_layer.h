#pragma once

/// What TransformerEncoderLayer and TransformerDecoderLayer share: options, masks, activation.

#include <cstdint>
#include <functional>
#include <variant>

#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/visit.h"
#include "tessera/tensor/activation.h"

namespace tessera::nn {

/// Between the two linear layers: one of the known ones, or any function.
using TransformerActivation =
    std::variant<ActivationKind, std::function<Variable(const Variable&)>>;

/// PyTorch's options and defaults, but for batch_first, which is true here. Left out: device (see
/// nn::initialize).
struct TransformerLayerOptions {
  std::int64_t dim = 0;             ///< "d_model"; required, a multiple of heads
  std::int64_t heads = 0;           ///< "nhead"; required
  std::int64_t feedforward = 2048;  ///< features between the two linear layers
  double dropout = 0.1;  ///< of attention probabilities, residual branches, the activation
  TransformerActivation activation = ActivationKind::kRelu;
  double eps = 1e-5;        ///< of the norms
  bool batch_first = true;  ///< [batch, length, dim]; else [length, batch, dim]
  bool norm_first = false;  ///< norms before attention and linear layers; else after the sums
  bool bias = true;         ///< of linear layers, projections and norms
  DType dtype = DType::kF32;
};

/// What the queries of one attention may not see, as in AttentionForwardOptions: in bool masks true
/// may NOT be attended to. Holds no Variables.
struct TransformerMask {
  Tensor mask = {};  ///< AttentionMasks::attn_mask
  /// [batch, keys], also with batch_first = false; [keys] where inputs have no batch
  Tensor key_padding_mask = {};
  bool is_causal = false;
};
template <>
inline constexpr bool holds_no_tensors<TransformerMask> = true;

namespace detail {

Variable activate(const TransformerActivation& activation, const Variable& x);
/// The options of a layer's parts. Attention is batch first, since the layer turns its inputs.
MultiheadAttentionOptions attention_options(const TransformerLayerOptions& options);
LinearOptions widening_options(const TransformerLayerOptions& options);
LinearOptions narrowing_options(const TransformerLayerOptions& options);
LayerNormOptions norm_options(const TransformerLayerOptions& options);
AttentionForwardOptions attention_call(const TransformerMask& mask);
/// x [batch, length, dim] from the order of dims that the layer was built for, and back; a view. x
/// [length, dim] stays. The first throws InvalidArgument for other numbers of dims.
Variable to_batch_first(const char* where, const Variable& x, bool batch_first);
Variable from_batch_first(const Variable& x, bool batch_first);
/// Throws InvalidArgument for feedforward below 1 and an empty activation.
const TransformerLayerOptions& checked_layer_options(const char* where,
                                                     const TransformerLayerOptions& options);

}  // namespace detail
}  // namespace tessera::nn
