#pragma once

/// How the GPU's attention kernels split their work, the offsets of operands, and the masking rule
/// of a score. Pure functions, tested on the CPU.
///
/// Scores are computed in square tiles of kSide queries and keys, by blocks of kAttentionThreads
/// threads: 16 rows of 16 threads, each with kLane x kLane scores.

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/math/random_math.h"

namespace tessera::cuda {

inline constexpr int kAttentionThreads = 256;

/// Extents of tiles that are computed in C, float or double.
template <class C>
struct AttentionTile {
  static constexpr int kLane = Pack<C>::kCount;   ///< adjacent elements per thread
  static constexpr int kSide = 16 * kLane;        ///< queries and keys of a tile
  static constexpr int kColumns = 2 * kSide;      ///< of the result, per block
  static constexpr int kDepth = 16;               ///< of products, between two barriers
  static constexpr int kSpacing = kSide + kLane;  ///< pitch of the rows of a tile in shared memory
};

/// Strides of one operand [.., heads, rows, columns], in elements.
struct HeadStrides {
  std::int64_t batch[kMaxDims] = {};  ///< of the dims before the last three
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

inline HeadStrides head_strides(const Shape& strides) {
  HeadStrides out;
  const int last = strides.ndim() - 1;
  for (int d = 0; d + 2 < last; ++d) out.batch[d] = strides[d];
  out.head = strides[last - 2];
  out.row = strides[last - 1];
  out.column = strides[last];
  return out;
}

/// An operand of one floating dtype.
struct HeadView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  HeadStrides strides;
  bool takes_packs = false;  ///< rows can be read 16 bytes at a time
};
struct HeadOutput {
  void* data = nullptr;
  DType dtype = DType::kF32;
  HeadStrides strides;
};

inline HeadView head_view(const ConstView& x) {
  HeadView out{.data = x.data, .dtype = x.dtype, .strides = head_strides(x.strides)};
  const auto pack = static_cast<std::int64_t>(16 / dtype_size(x.dtype));
  out.takes_packs = is_pack_aligned(x.data) && x.strides.back() == 1 && x.shape.back() % pack == 0;
  for (int d = 0; d + 1 < x.shape.ndim(); ++d)
    out.takes_packs = out.takes_packs && (x.shape[d] <= 1 || x.strides[d] % pack == 0);
  return out;
}
inline HeadOutput head_output(const View& x) {
  return {.data = x.data, .dtype = x.dtype, .strides = head_strides(x.strides)};
}

/// Extents of a launch.
struct AttentionExtents {
  int batch_dims = 0;
  std::int64_t batch_shape[kMaxDims] = {};
  std::int64_t batch = 1, heads = 0, kv_heads = 0, queries = 0, keys = 0, dim = 0, value_dim = 0;

  TESSERA_HD std::int64_t group() const { return kv_heads == 0 ? 0 : heads / kv_heads; }
};

inline AttentionExtents attention_extents(const AttentionGeometry& g) {
  AttentionExtents out{.batch = g.batch,
                       .heads = g.heads,
                       .kv_heads = g.kv_heads,
                       .queries = g.queries,
                       .keys = g.keys,
                       .dim = g.dim,
                       .value_dim = g.value_dim};
  out.batch_dims = g.probabilities.ndim() - 3;
  for (int d = 0; d < out.batch_dims; ++d) out.batch_shape[d] = g.probabilities[d];
  return out;
}

/// The offset of head `head` of batch entry `batch`; entries count in row-major order.
TESSERA_HD std::int64_t head_offset(const AttentionExtents& extents, const HeadStrides& strides,
                                    std::int64_t batch, std::int64_t head) {
  std::int64_t offset = head * strides.head;
  for (int d = extents.batch_dims - 1; d >= 0; --d) {
    offset += batch % extents.batch_shape[d] * strides.batch[d];
    batch /= extents.batch_shape[d];
  }
  return offset;
}

/// The units of work of a launch, one per block: `tiles` tiles of rows times `chunks` chunks of
/// columns of the result, for each of `heads` heads of `batch` entries.
struct AttentionUnits {
  std::int64_t batch = 0, heads = 0, tiles = 0, chunks = 0;

  TESSERA_HD std::int64_t count() const { return batch * heads * tiles * chunks; }
};
inline AttentionUnits attention_units(std::int64_t batch, std::int64_t heads, std::int64_t rows,
                                      std::int64_t columns, DType compute) {
  const std::int64_t side =
      compute == DType::kF64 ? AttentionTile<double>::kSide : AttentionTile<float>::kSide;
  return {.batch = batch,
          .heads = heads,
          .tiles = (rows + side - 1) / side,
          .chunks = (columns + 2 * side - 1) / (2 * side)};
}

/// Number of blocks of a launch; if there are more units, blocks take several.
inline unsigned attention_blocks(const AttentionUnits& units) {
  return static_cast<unsigned>(std::min<std::int64_t>(units.count(), 0x7fffffff));
}

struct AttentionPlace {
  std::int64_t batch = 0, head = 0, tile = 0, chunk = 0;
};
/// The last rows come first: under a causal rule they take longest.
TESSERA_HD AttentionPlace attention_place(const AttentionUnits& units, std::int64_t unit) {
  AttentionPlace place;
  place.head = unit % units.heads;
  unit /= units.heads;
  place.batch = unit % units.batch;
  unit /= units.batch;
  place.chunk = unit % units.chunks;
  place.tile = units.tiles - 1 - unit / units.chunks;
  return place;
}

/// AttentionRule in the form that kernels need.
template <class C>
struct ScoreRule {
  const void* mask = nullptr;
  DType mask_dtype = DType::kBool;
  HeadStrides mask_strides;
  bool causal = false;
  bool drops = false;
  std::int64_t diagonal = 0;
  C scale = 1;
  float dropout_p = 0;
  C keep_factor = 1;
  std::uint64_t key = 0;
  std::int64_t first_position = 0;
  HeadStrides position_strides;
};

template <class C>
ScoreRule<C> score_rule(const AttentionRule& rule) {
  ScoreRule<C> out;
  if (rule.mask.defined()) {
    out.mask = rule.mask.data;
    out.mask_dtype = rule.mask.dtype;
    out.mask_strides = head_strides(rule.mask.strides);
  }
  out.causal = rule.causal;
  out.diagonal = rule.diagonal;
  out.scale = static_cast<C>(rule.scale);
  out.drops = rule.dropout_p > 0;
  if (!out.drops) return out;
  out.dropout_p = static_cast<float>(rule.dropout_p);
  out.keep_factor = static_cast<C>(rule.dropout_p < 1 ? 1 / (1 - rule.dropout_p) : 0);
  out.key = rule.key;
  out.first_position = rule.first_position;
  out.position_strides = head_strides(rule.position_strides);
  return out;
}

/// Only keys [0, end) are attended to by queries before `query`.
template <class C>
TESSERA_HD std::int64_t visible_keys(const ScoreRule<C>& rule, std::int64_t query,
                                     std::int64_t keys) {
  if (!rule.causal) return keys;
  const std::int64_t end = query + rule.diagonal;
  return end < 0 ? 0 : end < keys ? end : keys;
}
/// The first query, at least 0, that attends to `key` or a later key.
template <class C>
TESSERA_HD std::int64_t first_query(const ScoreRule<C>& rule, std::int64_t key) {
  const std::int64_t first = key - rule.diagonal;
  return rule.causal && first > 0 ? first : 0;
}

/// The dropout factors of kLane adjacent keys: 0 or 1 / (1 - p). Draws the CPU's numbers:
/// `position` is that of the first key.
template <class C>
TESSERA_HD Pack<C> keep_factors(const ScoreRule<C>& rule, std::int64_t position) {
  Pack<C> out;
  std::uint64_t drawn = 0;
  random::Numbers<float> four{};
  for (int i = 0; i < Pack<C>::kCount; ++i) {
    const auto at = static_cast<std::uint64_t>(position + i * rule.position_strides.column);
    if (i == 0 || at / 4 != drawn) four = random::uniforms(random::philox(rule.key, at / 4), 0.0f);
    drawn = at / 4;
    const int lane = static_cast<int>(at % 4);
    const float number =
        lane < 2 ? (lane == 0 ? four.n[0] : four.n[1]) : (lane == 2 ? four.n[2] : four.n[3]);
    out.values[i] = number >= rule.dropout_p ? rule.keep_factor : C{0};
  }
  return out;
}

}  // namespace tessera::cuda
