#pragma once

/// Scaled dot-product attention, in memory linear in the sequence lengths.
///
///     output = dropout(softmax(scale * q k^T + mask)) v
///
///     q [.., heads, queries, dim]    k [.., kv heads, keys, dim]
///     v [.., kv heads, keys, value dim]
///     -> output [.., heads, queries, value dim]
///
/// q, k and v have one floating dtype, at least 3 dims and equal dims before the last three; or all
/// have 2, which is one head (the derivative takes 3 or more).
/// Extents may be 0, except dim and value dim. Strides are arbitrary: heads split off by a
/// transpose need no copy. The output has its heads and rows in the memory order of q, each
/// gradient in that of its operand.
///
/// Grouped-query attention: heads is a multiple of kv heads; head h reads key-value head h / (heads
/// / kv heads).
///
/// A query that attends to no key (because of the mask, of causality, or because there are no keys)
/// has zeros as output and as gradient.
///
/// The matrix of probabilities is never stored: the forward keeps one number for each query, and
/// the derivative recomputes blocks of 128 x 128. 16-bit dtypes are computed in f32 and rounded
/// once. The bits do not depend on the number of threads or on strides. Threads split the forward
/// by blocks of queries, and the derivative by key-value heads, so there one head of one sample
/// uses one thread.

#include <cstdint>
#include <optional>

#include "tessera/tensor/random.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// The alignment of the causal mask if the numbers of queries and keys differ.
enum class CausalAlignment : std::uint8_t {
  kTopLeft,      ///< query i attends to keys 0 ... i; PyTorch's is_causal
  kBottomRight,  ///< to keys 0 ... i + keys - queries; for a key-value cache
};

struct AttentionOptions {
  bool causal = false;
  CausalAlignment alignment = CausalAlignment::kTopLeft;
  /// Broadcastable to [.., heads, queries, keys]. bool: true may attend. Any floating dtype: added
  /// to the scaled scores. Combined with causal, if both are set. May be undefined.
  Tensor mask = {};
  std::optional<double> scale = {};  ///< 1 / sqrt(dim) when not given
  /// The probability of setting a probability to 0, in [0, 1]; the others are divided by 1 -
  /// dropout_p. An element is dropped if fill_uniform of an f32 tensor in `dropout_box` under
  /// `dropout_key` gives a number below dropout_p.
  double dropout_p = 0;
  random::Key dropout_key = {};
  /// The box of [.., heads, queries, keys] among the probabilities of all ranks; empty: this rank
  /// has all.
  random::Box dropout_box = {};
};

struct AttentionResult {
  Tensor output;
  Tensor log_sum_exp;  ///< [.., heads, queries], f64 for f64, else f32; -inf where no key is
                       ///< attended
};
/// Throws InvalidArgument for dtypes, devices, shapes, a mask, a scale or dropout that are invalid.
AttentionResult scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionOptions& options = {});

struct AttentionInputs {
  Tensor q;
  Tensor k;
  Tensor v;
};
/// The gradients of q, k and v from that of the output; `inputs`, `result` and `options` as in the
/// forward. The mask has no gradient.
AttentionInputs scaled_dot_product_attention_backward(const Tensor& doutput,
                                                      const AttentionInputs& inputs,
                                                      const AttentionResult& result,
                                                      const AttentionOptions& options);

}  // namespace tessera
