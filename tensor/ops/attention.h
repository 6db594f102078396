#pragma once

/// Scaled dot-product attention, in memory linear in the sequence lengths.
///
///     output = dropout(softmax(scale * q k^T + mask)) v
///
///     q [.., heads, queries, dim]   k [.., kv heads, keys, dim]   v [.., kv heads, keys, value
///     dim]
///     -> output [.., heads, queries, value dim]
///
/// All of one floating dtype, at least 3 dims, with equal dims before the last three; extents of 0
/// are legal but for dim and value dim. Any strides: heads split off by a transpose cost no copy of
/// the tensor, and a result has its heads and rows in memory in the order of the operand it is
/// like.
///
/// Grouped heads: heads is a multiple of kv heads; head h reads key-value head h / (heads / kv
/// heads).
///
/// A query that sees no key (by the mask, by causality, or because there are none) gives zeros, and
/// zero gradients.
///
/// The matrix of probabilities is never held: the forward keeps one number a query, and the
/// derivative computes blocks of 128 x 128 again. 16-bit dtypes are computed in f32 and rounded
/// once. Equal bits for any number of threads and any strides. Threads share out blocks of queries
/// in the forward; in the derivative key-value heads, so one head of one sample is one thread's
/// work there.

#include <cstdint>
#include <optional>

#include "tessera/tensor/random.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// Which query and key are level where causal attention has unlike numbers of them.
enum class CausalAlignment : std::uint8_t {
  kTopLeft,      ///< the first: query i sees keys 0 ... i; PyTorch's is_causal
  kBottomRight,  ///< the last: query i sees keys 0 ... i + keys - queries; for a key-value cache
};

struct AttentionOptions {
  bool causal = false;
  CausalAlignment alignment = CausalAlignment::kTopLeft;
  /// Broadcastable to [.., heads, queries, keys]. bool: true may attend. Floating, of any such
  /// dtype: added to the scaled scores. Together with causal both hold. May be undefined.
  Tensor mask = {};
  std::optional<double> scale = {};  ///< 1 / sqrt(dim) when not given
  /// The share of probabilities that becomes 0, in [0, 1]; the others are divided by 1 - dropout_p.
  /// Dropped is where fill_uniform of an f32 tensor in `dropout_box` under `dropout_key` gives a
  /// number below dropout_p.
  double dropout_p = 0;
  random::Key dropout_key = {};
  /// Where the probabilities [.., heads, queries, keys] lie in those of all ranks; empty: they are
  /// all there is.
  random::Box dropout_box = {};
};

struct AttentionResult {
  Tensor output;
  Tensor log_sum_exp;  ///< [.., heads, queries], f64 for f64, else f32; -inf where no key is seen
};
/// Throws InvalidArgument when dtypes, devices, shapes, mask, scale or dropout do not fit.
AttentionResult scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionOptions& options = {});

struct AttentionInputs {
  Tensor q;
  Tensor k;
  Tensor v;
};
/// The gradients of q, k and v, given that of the output; `inputs`, `result` and `options` as in
/// the forward. The mask gets none.
AttentionInputs scaled_dot_product_attention_backward(const Tensor& doutput,
                                                      const AttentionInputs& inputs,
                                                      const AttentionResult& result,
                                                      const AttentionOptions& options);

}  // namespace tessera
