#pragma once

/// Shared by attention and its derivatives on a GPU: tiles of operands in shared memory, their
/// products, and the scores of a tile. For .cu files.
///
/// A thread of a block has rows ty * kLane + i and columns g * kSide + tx * kLane + j of a product.
/// Tiles are stored depth-major, so that a thread reads its rows and columns 16 bytes at a time.

#include <cstdint>
#include <limits>

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/windows/attention_layout.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::cuda {

__device__ inline int tile_row_thread() { return static_cast<int>(threadIdx.x) / 16; }
__device__ inline int tile_column_thread() { return static_cast<int>(threadIdx.x) % 16; }

/// Calls body.template operator()<T>() with the type of a floating dtype whose compute type is C.
template <class C, class Body>
__device__ inline void with_element_of(DType dtype, Body&& body) {
  if constexpr (sizeof(C) == 8) {
    body.template operator()<double>();
  } else {
    if (dtype == DType::kBF16) return body.template operator()<BFloat16>();
    if (dtype == DType::kF16) return body.template operator()<Float16>();
    body.template operator()<float>();
  }
}

/// A window of one head of an operand, from (row, column) on; elements beyond `rows` and `columns`
/// are 0.
struct Window {
  std::int64_t offset = 0;  ///< of the head
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

/// Calls store(r, c, value) for a kRows x kColumns window, each thread for its share. Adjacent
/// threads store adjacent rows if kRowsFirst, else adjacent columns.
template <class C, int kRows, int kColumns, bool kRowsFirst, class Store>
__device__ inline void load_window(const HeadView& x, const Window& w, Store store) {
  with_element_of<C>(x.dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(x.data) + w.offset;
    const auto inside = [&](int r, int c) {
      return w.row + r < w.rows && w.column + c < w.columns;
    };
    if (x.takes_packs) {
      constexpr int kCount = Pack<T>::kCount, kPerRow = kColumns / kCount;
      for (int i = static_cast<int>(threadIdx.x); i < kRows * kPerRow; i += kAttentionThreads) {
        const int r = kRowsFirst ? i % kRows : i / kPerRow,
                  c = (kRowsFirst ? i / kRows : i % kPerRow) * kCount;
        Pack<T> pack{};
        if (inside(r, c)) pack = load_pack(from + (w.row + r) * x.strides.row + w.column + c, 0);
#pragma unroll
        for (int j = 0; j < kCount; ++j) store(r, c + j, convert_element<C>(pack.values[j]));
      }
      return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns; i += kAttentionThreads) {
      const int r = i / kColumns, c = i % kColumns;
      C value{0};
      if (inside(r, c)) {
        value = convert_element<C>(
            from[(w.row + r) * x.strides.row + (w.column + c) * x.strides.column]);
      }
      store(r, c, value);
    }
  });
}

/// sums += a^T b over `depth` rows: a has kSpacing elements per row, b `b_spacing`.
template <class C, int kColumns>
__device__ inline void add_product(C (&sums)[AttentionTile<C>::kLane][kColumns], const C* a,
                                   const C* b, int b_spacing) {
  using Tile = AttentionTile<C>;
  a += tile_row_thread() * Tile::kLane;
  b += tile_column_thread() * Tile::kLane;
#pragma unroll 4
  for (int k = 0; k < Tile::kDepth; ++k) {
    const Pack<C> x = load_pack(a + k * Tile::kSpacing, 0);
#pragma unroll
    for (int g = 0; g < kColumns / Tile::kLane; ++g) {
      const Pack<C> y = load_pack(b + k * b_spacing + g * Tile::kSide, 0);
#pragma unroll
      for (int i = 0; i < Tile::kLane; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::kLane; ++j) {
          C& sum = sums[i][g * Tile::kLane + j];
          sum = scalar::fma(x.values[i], y.values[j], sum);
        }
      }
    }
  }
}

/// Shared memory of a block: two depth-major tiles, or rows of one operand.
template <class C>
inline constexpr int kChunkPacks =
    2 * AttentionTile<C>::kDepth* AttentionTile<C>::kSpacing / AttentionTile<C>::kLane;
/// In addition a tile of weights computed from scores: [column][row].
template <class C>
inline constexpr int kWeightPacks =
    AttentionTile<C>::kSide* AttentionTile<C>::kSpacing / AttentionTile<C>::kLane;

template <class C>
using Scores = C[AttentionTile<C>::kLane][AttentionTile<C>::kLane];
template <class C>
using Columns = C[AttentionTile<C>::kLane][2 * AttentionTile<C>::kLane];

/// One operand of a product of rows: kSide rows from window.row on, times `factor`.
template <class C>
struct Side {
  const HeadView& view;
  Window window;
  C factor = 1;
};

// Not inlined: that keeps the kernels' registers for products.
template <class C>
__device__ __attribute__((noinline)) void load_depth_major(C* to, const Side<C>& side) {
  using Tile = AttentionTile<C>;
  load_window<C, Tile::kSide, Tile::kDepth, true>(
      side.view, side.window,
      [&](int r, int c, C value) { to[c * Tile::kSpacing + r] = value * side.factor; });
}
template <class C>
__device__ __attribute__((noinline)) void load_row_major(C* to, const Side<C>& side) {
  using Tile = AttentionTile<C>;
  load_window<C, Tile::kDepth, Tile::kColumns, false>(
      side.view, side.window,
      [&](int r, int c, C value) { to[r * Tile::kColumns + c] = value * side.factor; });
}

/// scores = the products of a's rows with b's. Begins with a barrier, ends without one.
template <class C>
__device__ inline void multiply_rows(Scores<C>& scores, C* chunks, Side<C> a, Side<C> b) {
  using Tile = AttentionTile<C>;
#pragma unroll
  for (auto& row : scores)
    for (C& score : row) score = C{0};
  C* second = chunks + Tile::kDepth * Tile::kSpacing;
  for (std::int64_t first = 0; first < a.window.columns; first += Tile::kDepth) {
    a.window.column = b.window.column = first;
    __syncthreads();
    load_depth_major(chunks, a);
    load_depth_major(second, b);
    __syncthreads();
    add_product(scores, chunks, second, Tile::kSpacing);
  }
}

/// sums += weights^T times the rows of `b` from its window on, kColumns columns. Begins with a
/// barrier, ends without one.
template <class C>
__device__ inline void add_weighted_rows(Columns<C>& sums, const C* weights, C* chunks, Side<C> b) {
  using Tile = AttentionTile<C>;
  const std::int64_t first = b.window.row;
  for (int k = 0; k < Tile::kSide && first + k < b.window.rows; k += Tile::kDepth) {
    b.window.row = first + k;
    __syncthreads();
    load_row_major(chunks, b);
    __syncthreads();
    add_product(sums, weights + k * Tile::kSpacing, chunks, Tile::kColumns);
  }
}

/// weights[column][row] = values, for the thread's share of a tile.
template <class C>
__device__ inline void store_weights(C* weights, const Scores<C>& values) {
  using Tile = AttentionTile<C>;
#pragma unroll
  for (int j = 0; j < Tile::kLane; ++j) {
    Pack<C> pack;
#pragma unroll
    for (int i = 0; i < Tile::kLane; ++i) pack.values[i] = values[i][j];
    store_pack(weights + (tile_column_thread() * Tile::kLane + j) * Tile::kSpacing +
                   tile_row_thread() * Tile::kLane,
               0, pack);
  }
}

/// Calls f(index in Columns, column in the chunk) for the columns of a thread, in the order of
/// Columns.
template <class C, class F>
__device__ inline void for_columns(F f) {
  using Tile = AttentionTile<C>;
#pragma unroll
  for (int c = 0; c < 2 * Tile::kLane; ++c) {
    f(c, c / Tile::kLane * Tile::kSide + tile_column_thread() * Tile::kLane + c % Tile::kLane);
  }
}

/// A value of the mask; a separate function, which kernels call for each score.
template <class C>
__device__ __attribute__((noinline)) C mask_value(const void* mask, DType dtype, std::int64_t at) {
  return load_element<C>(mask, dtype, at);
}
template <class C>
__device__ __attribute__((noinline)) Pack<C> draw_keep_factors(const ScoreRule<C>& rule,
                                                               std::int64_t position) {
  return keep_factors(rule, position);
}

/// The rule for one head of a launch.
template <class C>
struct HeadRule {
  const ScoreRule<C>& rule;
  std::int64_t queries, keys;
  std::int64_t mask_offset = 0, position = 0;

  __device__ HeadRule(const ScoreRule<C>& rule, const AttentionExtents& extents, std::int64_t batch,
                      std::int64_t head)
      : rule(rule), queries(extents.queries), keys(extents.keys) {
    if (rule.mask != nullptr) mask_offset = head_offset(extents, rule.mask_strides, batch, head);
    if (rule.drops)
      position = rule.first_position + head_offset(extents, rule.position_strides, batch, head);
  }

  /// The score of a pair under the mask; -inf if the pair is masked or does not exist.
  __device__ C score(std::int64_t query, std::int64_t key, C value) const {
    constexpr C kNever = -std::numeric_limits<C>::infinity();
    if (query >= queries || key >= keys) return kNever;
    if (rule.causal && key > query + rule.diagonal) return kNever;
    if (rule.mask == nullptr) return value;
    const C mask =
        mask_value<C>(rule.mask, rule.mask_dtype,
                      mask_offset + query * rule.mask_strides.row + key * rule.mask_strides.column);
    if (rule.mask_dtype == DType::kBool) return mask != C{0} ? value : kNever;
    return value + mask;
  }
  /// For kLane keys from `key` on.
  __device__ Pack<C> factors(std::int64_t query, std::int64_t key) const {
    return draw_keep_factors(
        rule, position + query * rule.position_strides.row + key * rule.position_strides.column);
  }
};

}  // namespace tessera::cuda
