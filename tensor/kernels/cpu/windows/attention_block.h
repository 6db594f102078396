#pragma once

/// Steps over one block of queries and keys that attention and its derivative share. C is float or
/// double. Operands of another dtype, or with strided columns, are copied into scratch in C; others may be read where they are.
/// Products have the same bits for both.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/matmul/products.h"
#include "tessera/tensor/kernels/cpu/units.h"
#include "tessera/tensor/kernels/math/random_math.h"
#include "tessera/tensor/kernels/types.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

inline constexpr std::int64_t kAttentionBlock = AttentionGeometry::kBlock;

/// One head of a view [.., heads, rows, n]: its offset in elements, and its strides.
struct Head {
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

/// Head `head` of batch entry `batch`, which counts all dims before the last three in row-major
/// order.
inline Head head_of(const Shape& shape, const Shape& strides, std::int64_t batch,
                    std::int64_t head) {
  const int last = shape.ndim() - 1;
  Head h{.offset = head * strides[last - 2],
         .row_stride = strides[last - 1],
         .column_stride = strides[last]};
  for (int d = last - 3; d >= 0; --d) {
    h.offset += batch % shape[d] * strides[d];
    batch /= shape[d];
  }
  return h;
}

template <class AnyView>
Head head_of(const AnyView& x, std::int64_t batch, std::int64_t head) {
  return head_of(x.shape, x.strides, batch, head);
}

/// Copies rows [row, row + rows) times `factor` to `out`, `spacing` elements apart; zeros up to
/// `all_rows`.
template <class C>
void pack_rows(const ConstView& x, const Head& head, std::int64_t row, std::int64_t rows,
               std::int64_t all_rows, C factor, C* out, std::int64_t spacing) {
  const std::int64_t n = x.shape.back();
  for (std::int64_t r = 0; r < rows; ++r, out += spacing) {
    const std::int64_t at = head.offset + (row + r) * head.row_stride;
    load_short_run(x, at, head.column_stride, n, out);
    if (factor != C{1}) {
      for (std::int64_t i = 0; i < n; ++i) out[i] *= factor;
    }
  }
  std::fill_n(out, (all_rows - rows) * spacing, C{0});
}

/// Rows [row, row + rows) of a head as an operand with zeros up to `all_rows`: where they are, if products can read them there,
/// or copied to `copy`, `spacing` elements apart.
template <class C>
Operand<const C> rows_of(const ConstView& x, const Head& head, std::int64_t row, std::int64_t rows,
                         std::int64_t all_rows, C* copy, std::int64_t spacing) {
  if (kProductsPack && x.dtype == dtype_of<C> && head.column_stride == 1 && rows == all_rows)
    return {x.as<C>() + head.offset + row * head.row_stride, head.row_stride, 1};
  pack_rows(x, head, row, rows, all_rows, C{1}, copy, spacing);
  return {copy, spacing, 1};
}

/// Writes one row of n elements to row `row` of a head.
template <class C>
void store_row(const View& y, const Head& head, std::int64_t row, const C* values) {
  const std::int64_t at = head.offset + row * head.row_stride;
  store_run(y.dtype, advance(y.data, y.dtype, at), head.column_stride, y.shape.back(), values);
}

/// Which part of a block of scores is computed: queries attend to no key after a diagonal if the rule is causal. The block is
/// divided into groups of kGroup queries and kGroup keys. A group of queries is computed with all groups of keys to which one
/// of its queries attends; what the rule excludes inside them is masked. All other probabilities are 0. Leaving
/// them out of the products changes no bit, except that an infinite or NaN value beside such a 0 no longer makes a result NaN.
template <class C>
class VisibleGroups {
 public:
  /// Queries [query, query + rows) and keys [key, key + columns).
  VisibleGroups(const AttentionRule& rule, std::int64_t query, std::int64_t rows, std::int64_t key,
                std::int64_t columns)
      : rule_(rule), query_(query), rows_(rows), key_(key), columns_(columns) {}

  /// Calls body(row, rows, columns): queries [row, row + rows) attend to keys [0, columns).
  template <class Body>
  void for_rows(const Body& body) const {
    for (std::int64_t row = 0, end = 0; row < rows_; row = end) {
      const std::int64_t columns = columns_of(row);
      for (end = row; end < rows_ && columns_of(end) == columns;)
        end = std::min(rows_, end + kGroup);
      if (columns > 0) body(row, end - row, columns);
    }
  }
  /// Calls body(column, columns, row): keys [column, column + columns) are attended to by queries [row, rows).
  template <class Body>
  void for_columns(const Body& body) const {
    for (std::int64_t column = 0, end = 0; column < columns_; column = end) {
      const std::int64_t row = first_row(column);
      for (end = column; end < columns_ && first_row(end) == row;)
        end = std::min(columns_, end + kGroup);
      if (row < rows_) body(column, end - column, row);
    }
  }

 private:
  // Products by a library may round differently for other extents: they compute the block whole.
  static constexpr std::int64_t kGroup =
      kProductsPack && std::is_same_v<C, float> ? 64 : kAttentionBlock;

  // The keys with which the group of queries that begins at `row` is computed.
  std::int64_t columns_of(std::int64_t row) const {
    const std::int64_t end = query_ + std::min(rows_, row + kGroup),
                       seen = rule_.visible_end(end, key_ + columns_) - key_;
    return std::clamp<std::int64_t>((seen + kGroup - 1) / kGroup * kGroup, 0, columns_);
  }
  // The first query that is computed with the group of keys that begins at `column`.
  std::int64_t first_row(std::int64_t column) const {
    std::int64_t row = 0;
    while (row < rows_ && columns_of(row) <= column) row += kGroup;
    return std::min(row, rows_);
  }

  const AttentionRule& rule_;
  std::int64_t query_, rows_, key_, columns_;
};

/// The rule for one head: masks scores and draws dropout factors, row by row.
template <class C>
class HeadRule {
 public:
  HeadRule(const AttentionRule& rule, const Shape& probabilities, std::int64_t batch,
           std::int64_t head)
      : rule_(rule),
        keep_factor_(static_cast<C>(rule.dropout_p < 1 ? 1 / (1 - rule.dropout_p) : 0)) {
    if (rule.mask.defined()) mask_ = head_of(probabilities, rule.mask.strides, batch, head);
    if (drops()) {
      positions_ = head_of(probabilities, rule.position_strides, batch, head);
      positions_.offset += rule.first_position;
    }
  }

  bool drops() const { return rule_.dropout_p > 0; }

  /// Scores of `query` with keys [key, key + n); those up to `all` are padding.
  void mask_row(std::int64_t query, std::int64_t key, std::int64_t n, std::int64_t all,
                C* scores) const {
    constexpr C kNever = -std::numeric_limits<C>::infinity();
    if (rule_.mask.defined()) add_mask(query, key, n, scores);
    const std::int64_t visible =
        std::clamp<std::int64_t>(rule_.visible_end(query + 1, key + n) - key, 0, n);
    std::fill(scores + visible, scores + all, kNever);
  }

  /// The dropout factors of the probabilities of `query` with keys [key, key + n): 0 or 1 / (1 -
  /// p).
  void keep_factors(std::int64_t query, std::int64_t key, std::int64_t n, C* factors) const {
    float numbers[kAttentionBlock + 8];
    const auto first = static_cast<std::uint64_t>(
        positions_.offset + query * positions_.row_stride + key * positions_.column_stride);
    const std::uint64_t block = first / 4, end = (first + static_cast<std::uint64_t>(n) + 3) / 4;
    for (std::uint64_t b = block; b < end; ++b) {
      const auto four = random::uniforms(random::philox(rule_.key, b), 0.0f);
      std::copy_n(four.n, 4, numbers + (b - block) * 4);
    }
    const float* from = numbers + first % 4;
    const auto p = static_cast<float>(rule_.dropout_p);
    for (std::int64_t i = 0; i < n; ++i) factors[i] = from[i] >= p ? keep_factor_ : C{0};
  }

 private:
  void add_mask(std::int64_t query, std::int64_t key, std::int64_t n, C* scores) const {
    constexpr C kNever = -std::numeric_limits<C>::infinity();
    const ConstView& m = rule_.mask;
    C values[kAttentionBlock];
    const std::int64_t at = mask_.offset + query * mask_.row_stride + key * mask_.column_stride;
    load_run(m.dtype, advance(m.data, m.dtype, at), mask_.column_stride, n, values);
    if (m.dtype == DType::kBool) {
      for (std::int64_t i = 0; i < n; ++i) scores[i] = values[i] != C{0} ? scores[i] : kNever;
    } else {
      for (std::int64_t i = 0; i < n; ++i) scores[i] += values[i];
    }
  }

  const AttentionRule& rule_;
  C keep_factor_;
  Head mask_;
  Head positions_;
};

}  // namespace tessera::cpu
