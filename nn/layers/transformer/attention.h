#pragma once

/// Attention with several heads (Vaswani et al., "Attention Is All You Need", 2017), self and
/// cross, with grouped heads (Ainslie et al., 2023), a key-value cache and rotary positions.
///
///     q, k, v = query Wq^T + bq, key Wk^T + bk, value Wv^T + bv, each cut into heads
///     output  = concat over heads(softmax(q k^T / sqrt(head dim) + mask) v) Wo^T + bo
///
///     query [batch, queries, dim]   key [batch, keys, kdim]   value [batch, keys, vdim]
///     -> output [batch, queries, dim]
///
/// With batch_first = false batch and length change places, in and out. If none of the three has a
/// batch dim, neither do the results; key_padding_mask is then [keys].
///
/// Parameters are those of PyTorch's nn.MultiheadAttention, so that state dicts interchange. With
/// kv_dim = kv_heads * dim / heads:
///
///     in_proj_weight [dim + 2 kv_dim, dim], rows of q, k, v     where kdim and vdim are dim, else
///     q_proj_weight [dim, dim], k_proj_weight [kv_dim, kdim], v_proj_weight [kv_dim, vdim]
///     in_proj_bias [dim + 2 kv_dim]    out_proj.weight [dim, dim]    out_proj.bias [dim]
///
/// Projections in start xavier_uniform over the whole matrix, biases 0, out_proj.weight as
/// Linear's.
///
/// Unlike PyTorch's: batch_first is true unless said otherwise; weights come only when asked for; a
/// query that sees no key gives zeros and not NaN; is_causal needs no mask beside it; kv_heads and
/// rotary are new. Left out: add_bias_kv and add_zero_attn, which no current model uses, and
/// device (see nn::initialize). 16 bits are rounded to
/// once by each operation.

#include <cstdint>
#include <memory>
#include <optional>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/transformer/attention_mask.h"
#include "tessera/nn/layers/transformer/key_value_cache.h"
#include "tessera/nn/layers/transformer/rotary_embedding.h"
#include "tessera/tensor/random.h"

namespace tessera::nn {

struct MultiheadAttentionOptions {
  std::int64_t dim = 0;       ///< required, a multiple of heads
  std::int64_t heads = 0;     ///< required, >= 1
  std::int64_t kv_heads = 0;  ///< a divisor of heads, each read by heads / kv_heads; 0: as heads
  std::int64_t kdim = 0;      ///< features of key; 0: dim
  std::int64_t vdim = 0;      ///< features of value; 0: dim
  double dropout = 0;         ///< of the probabilities, in training
  bool bias = true;
  bool batch_first = true;
  /// Turns q and k by their positions, which count from the cache's length. Registered as child
  /// "rotary"; several layers may share one. Its dim is at most dim / heads.
  std::shared_ptr<RotaryEmbedding> rotary = {};
  DType dtype = DType::kF32;
};

/// What a call takes besides query, key and value. Holds no Variables: masks get no gradient.
struct AttentionForwardOptions {
  /// The masks of AttentionMasks, in attention_mask.h: in a bool one true may NOT be attended to.
  /// With a cache the keys are all of its positions, the new ones too.
  Tensor attn_mask = {};
  Tensor key_padding_mask = {};
  /// Query i sees keys 0 ... i, besides what masks say; with a cache the last query is level with
  /// the last key.
  bool is_causal = false;
  bool need_weights = false;    ///< compute the weights of the result; slower, more memory
  bool average_weights = true;  ///< over the heads
  /// Takes the new keys and values up; the queries then see those before too. Not owned.
  KeyValueCache* cache = nullptr;
};
template <>
inline constexpr bool holds_no_tensors<AttentionForwardOptions> = true;

struct MultiheadAttentionResult {
  Variable output;
  /// Where asked for, else undefined: probabilities after dropout [batch, queries, keys], their
  /// mean over the heads, or [batch, heads, queries, keys].
  Variable weights = {};

  template <class F>
  void visit_tensors(F&& f) {
    f(output, weights);
  }
};

class MultiheadAttention final : public Layer<MultiheadAttention> {
 public:
  using Options = MultiheadAttentionOptions;
  /// Throws InvalidArgument when extents or dropout are outside what the options say.
  explicit MultiheadAttention(const MultiheadAttentionOptions& options);
  MultiheadAttention(int, int, const auto&...) = delete;  ///< {.dim = 64, .heads = 4}

  /// Throws InvalidArgument naming the projection when shapes or dtypes do not fit; as
  /// merge_attention_masks, KeyValueCache::append and RotaryEmbedding do. Derivatives: once; twice
  /// with need_weights.
  MultiheadAttentionResult forward(const Variable& query, const Variable& key,
                                   const Variable& value, const AttentionForwardOptions& call = {});
  /// Self attention: the same as forward(x, x, x, call), with one projection where weights are
  /// packed.
  MultiheadAttentionResult forward(const Variable& x, const AttentionForwardOptions& call = {});

  Linear& out_proj() { return out_proj_; }
  std::int64_t head_dim() const { return head_dim_; }
  std::int64_t heads_per_kv_head() const { return group_; }

 private:
  struct Heads {
    Variable q, k, v;
  };
  void register_projections(const MultiheadAttentionOptions& options);
  void check_inputs(const Variable& query, const Variable& key, const Variable& value);
  void check_input(const char* name, const Variable& x, const Parameter& weight) const;
  Heads project(const Variable& query, const Variable& key, const Variable& value);
  Variable split_heads(const Variable& x) const;
  random::Box dropout_box(const Heads& heads) const;
  MultiheadAttentionResult forward_alone(const Variable& query, const Variable& key,
                                         const Variable& value, AttentionForwardOptions call);
  MultiheadAttentionResult attend(const Heads& heads, const Tensor& mask,
                                  const AttentionForwardOptions& call) const;

  // Head counts are not kept: they follow from the rows of the projections there are.
  std::int64_t head_dim_;
  std::int64_t group_;  // query heads of a key-value head
  double dropout_;
  bool batch_first_;
  std::shared_ptr<RotaryEmbedding> rotary_;
  std::optional<Parameter> in_proj_weight_;
  std::optional<Parameter> q_proj_weight_, k_proj_weight_, v_proj_weight_;
  std::optional<Parameter> in_proj_bias_;
  Linear out_proj_;
};

}  // namespace tessera::nn
