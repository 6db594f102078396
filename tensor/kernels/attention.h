#pragma once

/// Attention in blocks: softmax(scale * q k^T + mask) v without storing the matrix of probabilities
/// (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al.,
/// "FlashAttention", 2022). The blocks depend on the shape alone.

#include <algorithm>

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// The keys that a query attends to, and dropout of the probabilities.
struct AttentionRule {
  ConstView mask;       ///< [.., heads, queries, keys]; bool or floating; may be undefined
  bool causal = false;  ///< query i attends to key j if j <= i + diagonal
  std::int64_t diagonal = 0;
  double scale = 1;
  double dropout_p = 0;   ///< a probability is dropped if its uniform number is below
  std::uint64_t key = 0;  ///< of these numbers, at first_position + index . position_strides
  std::int64_t first_position = 0;
  Shape position_strides;  ///< of [.., heads, queries, keys]

  /// Only keys [0, end) are attended to by queries before `query`.
  std::int64_t visible_end(std::int64_t query, std::int64_t keys) const {
    return causal ? std::clamp<std::int64_t>(query + diagonal, 0, keys) : keys;
  }
};

/// Extents. All dims before the last three are merged into one, the batch.
struct AttentionGeometry {
  static constexpr std::int64_t kBlock = 128;  ///< queries and keys per block

  std::int64_t batch = 1, heads = 0, kv_heads = 0, queries = 0, keys = 0, dim = 0, value_dim = 0;
  DType compute = DType::kF32;
  Shape probabilities;  ///< [.., heads, queries, keys]

  AttentionGeometry(const ConstView& q, const ConstView& k, const ConstView& v)
      : compute(compute_dtype(q.dtype)), probabilities(q.shape) {
    const int last = q.shape.ndim() - 1;
    for (int d = 0; d + 2 < last; ++d) batch *= q.shape[d];
    heads = q.shape[last - 2];
    kv_heads = k.shape[last - 2];
    queries = q.shape[last - 1];
    keys = k.shape[last - 1];
    dim = q.shape[last];
    value_dim = v.shape[last];
    probabilities[last] = keys;
  }
  std::int64_t group() const { return kv_heads == 0 ? 0 : heads / kv_heads; }
  std::int64_t query_blocks() const { return (queries + kBlock - 1) / kBlock; }
  /// Padded number of rows of a block in products: only a few sizes, because oneDNN compiles code
  /// for each size (with AVX-512). A single row is not padded, because text generation has one.
  static std::int64_t block_rows(std::int64_t n) { return n == 1 ? 1 : padded(n); }

  /// Bytes for one query block: q, output, scores, three numbers per row, and scratch of products.
  std::size_t forward_share() const {
    const std::int64_t elements = kBlock * (2 * padded(dim) + 2 * padded(value_dim) + kBlock + 2);
    return static_cast<std::size_t>(elements) * dtype_size(compute) + products_share();
  }
  /// Bytes for one key-value head: its keys and values and their gradients, and blocks of queries.
  std::size_t backward_share() const {
    const std::int64_t rows = (keys + kBlock - 1) / kBlock * kBlock;
    const std::int64_t elements = 2 * rows * (padded(dim) + padded(value_dim)) +
                                  kBlock * (2 * padded(dim) + padded(value_dim) + 2 * kBlock + 2) +
                                  padded(value_dim);
    return static_cast<std::size_t>(elements) * dtype_size(compute) + products_share();
  }
  std::size_t products_share() const {
    const std::int64_t longest = std::max({kBlock, dim, value_dim});
    return product_scratch(compute, kBlock, longest, longest);
  }
};

struct AttentionKernel {
  static constexpr const char* kName = "attention";
  /// q [.., heads, queries, dim], k [.., kv heads, keys, dim], v [.., kv heads, keys, value dim]
  /// and out, which is like q with v's last dim; one floating dtype, any strides; heads is a
  /// multiple of kv heads; dims are above 0. log_sum_exp [.., heads, queries] is contiguous, in the
  /// compute dtype: the logarithm of a row's sum of exponentials, -inf for a row that attends to no
  /// key.
  struct Args {
    ConstView q;
    ConstView k;
    ConstView v;
    View out;
    View log_sum_exp;
    AttentionRule rule;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.q);
    f(a.k);
    f(a.v);
    if (a.rule.mask.defined()) f(a.rule.mask);
    f(a.out);
    f(a.log_sum_exp);
  }
  /// Threads take blocks of queries.
  static std::size_t workspace(const Args& a) {
    const AttentionGeometry g(a.q, a.k, a.v);
    return units_workspace(g.batch * g.heads * g.query_blocks(), g.forward_share());
  }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct AttentionBackwardKernel {
  static constexpr const char* kName = "attention_backward";
  /// As in AttentionKernel; dout and the gradients have the shapes of out, q, k and v.
  struct Args {
    ConstView dout;
    ConstView q;
    ConstView k;
    ConstView v;
    ConstView out;
    ConstView log_sum_exp;
    View dq;
    View dk;
    View dv;
    AttentionRule rule;
    /// Sums have one order, whatever it costs (determinism.h). The CPU's and our own kernels' always
    /// have.
    bool fixed_order = true;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (const ConstView* x : {&a.dout, &a.q, &a.k, &a.v, &a.out, &a.log_sum_exp}) f(*x);
    if (a.rule.mask.defined()) f(a.rule.mask);
    for (const View* x : {&a.dq, &a.dk, &a.dv}) f(*x);
  }
  /// Threads take key-value heads, so that one thread sums each gradient in one order.
  static std::size_t workspace(const Args& a) {
    const AttentionGeometry g(a.q, a.k, a.v);
    return units_workspace(g.batch * g.kv_heads, g.backward_share());
  }
  static std::size_t cuda_workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
