#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cpu/exp_run.h"
#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/cpu/windows/attention_block.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

using cpu::Head;
using cpu::kAttentionBlock;

// One head of keys and values, with all queries that attend to it. With P the probabilities, M the
// dropout factors and D the row sums of dout * out:
//     dP = M * (dout v^T)    dS = P * (dP - D)
//     dv = (P * M)^T dout    dk = scale dS^T q    dq = scale dS k
template <class C>
class KeyValueHead {
 public:
  KeyValueHead(const AttentionBackwardKernel::Args& args, const AttentionGeometry& g,
               std::int64_t unit, Workspace scratch)
      : args_(args),
        g_(g),
        batch_(unit / g.kv_heads),
        kv_head_(unit % g.kv_heads),
        key_rows_((g.keys + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock),
        dim_(padded(g.dim)),
        value_dim_(padded(g.value_dim)) {
    cpu::ScratchCutter cut(scratch);
    k_ = cut.take<C>(key_rows_ * dim_);
    v_ = cut.take<C>(key_rows_ * value_dim_);
    dk_ = cut.take<C>(key_rows_ * dim_);
    dv_ = cut.take<C>(key_rows_ * value_dim_);
    q_ = cut.take<C>(kAttentionBlock * dim_);
    dq_ = cut.take<C>(kAttentionBlock * dim_);
    dout_ = cut.take<C>(kAttentionBlock * value_dim_);
    scores_ = cut.take<C>(kAttentionBlock * kAttentionBlock);
    dscores_ = cut.take<C>(kAttentionBlock * kAttentionBlock);
    log_sum_exp_ = cut.take<C>(kAttentionBlock);
    dot_ = cut.take<C>(kAttentionBlock);
    row_ = cut.take<C>(value_dim_);
    products_ = cut.rest(g.products_share());
  }

  void run() {
    const std::int64_t keys = g_.keys;
    cpu::pack_rows(args_.k, cpu::head_of(args_.k, batch_, kv_head_), 0, keys, key_rows_, C{1}, k_,
                   dim_);
    cpu::pack_rows(args_.v, cpu::head_of(args_.v, batch_, kv_head_), 0, keys, key_rows_, C{1}, v_,
                   value_dim_);
    std::fill_n(dk_, key_rows_ * dim_, C{0});
    std::fill_n(dv_, key_rows_ * value_dim_, C{0});
    for (std::int64_t h = kv_head_ * g_.group(); h < (kv_head_ + 1) * g_.group(); ++h) {
      for (std::int64_t query = 0; query < g_.queries; query += kAttentionBlock) {
        add_queries(h, query);
      }
    }
    const Head dk = cpu::head_of(args_.dk, batch_, kv_head_),
               dv = cpu::head_of(args_.dv, batch_, kv_head_);
    for (std::int64_t r = 0; r < keys; ++r) cpu::store_row(args_.dk, dk, r, dk_ + r * dim_);
    for (std::int64_t r = 0; r < keys; ++r) cpu::store_row(args_.dv, dv, r, dv_ + r * value_dim_);
  }

 private:
  // Queries [query, query + kAttentionBlock) of one head, with all keys that they attend to.
  void add_queries(std::int64_t head, std::int64_t query) {
    const std::int64_t count = std::min(kAttentionBlock, g_.queries - query),
                       rows = AttentionGeometry::block_rows(count);
    const auto scale = static_cast<C>(args_.rule.scale);
    cpu::pack_rows(args_.q, cpu::head_of(args_.q, batch_, head), query, count, rows, scale, q_,
                   dim_);
    load_gradient(head, query, count, rows);
    std::fill_n(dq_, rows * dim_, C{0});
    const std::int64_t end = args_.rule.visible_end(query + count, g_.keys);
    const cpu::HeadRule<C> rule(args_.rule, g_.probabilities, batch_, head);
    for (std::int64_t key = 0; key < end; key += kAttentionBlock)
      add_keys(rule, query, count, rows, key);
    const Head dq = cpu::head_of(args_.dq, batch_, head);
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t i = 0; i < g_.dim; ++i) dq_[r * dim_ + i] *= scale;
      cpu::store_row(args_.dq, dq, query + r, dq_ + r * dim_);
    }
  }

  // The same queries with keys [key, key + kAttentionBlock).
  void add_keys(const cpu::HeadRule<C>& rule, std::int64_t query, std::int64_t count,
                std::int64_t all_rows, std::int64_t key) {
    const std::int64_t n = std::min(kAttentionBlock, g_.keys - key),
                       columns = AttentionGeometry::block_rows(n);
    const cpu::VisibleGroups<C> groups(args_.rule, query, all_rows, key, columns);
    groups.for_rows([&](std::int64_t row, std::int64_t rows, std::int64_t seen) {
      multiply_to_scores(row, rows, key, seen);
      for (std::int64_t r = row; r < row + rows; ++r) {
        if (r < count) {
          score_gradients(rule, query, r, key, std::min(n, seen), seen);
        } else {
          std::fill_n(scores_ + r * kAttentionBlock, seen, C{0});
          std::fill_n(dscores_ + r * kAttentionBlock, seen, C{0});
        }
      }
      add_query_gradients(row, rows, key, seen);
    });
    groups.for_columns([&](std::int64_t column, std::int64_t seen, std::int64_t row) {
      add_key_gradients(column, seen, key, row, all_rows - row);
    });
  }

  void load_gradient(std::int64_t head, std::int64_t query, std::int64_t count, std::int64_t rows) {
    const Head dout = cpu::head_of(args_.dout, batch_, head),
               out = cpu::head_of(args_.out, batch_, head);
    cpu::pack_rows(args_.dout, dout, query, count, rows, C{1}, dout_, value_dim_);
    const C* saved = args_.log_sum_exp.as<C>() + (batch_ * g_.heads + head) * g_.queries + query;
    for (std::int64_t r = 0; r < count; ++r) {
      cpu::pack_rows(args_.out, out, query + r, 1, 1, C{1}, row_, value_dim_);
      const C* a = dout_ + r * value_dim_;
      dot_[r] = cpu::lane_sum<C>(g_.value_dim, [&](std::int64_t i) { return a[i] * row_[i]; });
      // A row that attends to no key: its scores are all -inf, and relative to 0 they give zeros.
      log_sum_exp_[r] = saved[r] == -std::numeric_limits<C>::infinity() ? C{0} : saved[r];
    }
  }

  // scores = scale q k^T, dscores = dout v^T, of queries [row, row + rows) and keys [key, key + columns).
  void multiply_to_scores(std::int64_t row, std::int64_t rows, std::int64_t key,
                          std::int64_t columns) {
    cpu::multiply(cpu::Product<C>{.m = rows,
                                  .n = columns,
                                  .k = g_.dim,
                                  .a = {q_ + row * dim_, dim_, 1},
                                  .b = {k_ + key * dim_, 1, dim_},
                                  .c = {scores_ + row * kAttentionBlock, kAttentionBlock, 1}},
                  products_);
    cpu::multiply(cpu::Product<C>{.m = rows,
                                  .n = columns,
                                  .k = g_.value_dim,
                                  .a = {dout_ + row * value_dim_, value_dim_, 1},
                                  .b = {v_ + key * value_dim_, 1, value_dim_},
                                  .c = {dscores_ + row * kAttentionBlock, kAttentionBlock, 1}},
                  products_);
  }

  // Row r of scores becomes P * M, that of dscores becomes dS.
  void score_gradients(const cpu::HeadRule<C>& rule, std::int64_t query, std::int64_t r,
                       std::int64_t key, std::int64_t n, std::int64_t columns) {
    C* p = scores_ + r * kAttentionBlock;
    C* d = dscores_ + r * kAttentionBlock;
    const C shift = log_sum_exp_[r], dot = dot_[r];
    rule.mask_row(query + r, key, n, columns, p);
    cpu::exp_run(columns, p, shift, p);
    if (!rule.drops()) {
      for (std::int64_t i = 0; i < columns; ++i) d[i] = p[i] * (d[i] - dot);
      return;
    }
    C factors[kAttentionBlock] = {};
    rule.keep_factors(query + r, key, n, factors);
    for (std::int64_t i = 0; i < columns; ++i) {
      d[i] = p[i] * scalar::fma(factors[i], d[i], -dot);
      p[i] *= factors[i];
    }
  }

  // Keys [key + column, key + column + columns) with queries [row, row + rows).
  void add_key_gradients(std::int64_t column, std::int64_t columns, std::int64_t key,
                         std::int64_t row, std::int64_t rows) {
    const std::int64_t at = row * kAttentionBlock + column;
    cpu::multiply(cpu::Product<C>{.m = columns,
                                  .n = g_.value_dim,
                                  .k = rows,
                                  .a = {scores_ + at, 1, kAttentionBlock},
                                  .b = {dout_ + row * value_dim_, value_dim_, 1},
                                  .c = {dv_ + (key + column) * value_dim_, value_dim_, 1},
                                  .beta = 1},
                  products_);
    cpu::multiply(cpu::Product<C>{.m = columns,
                                  .n = g_.dim,
                                  .k = rows,
                                  .a = {dscores_ + at, 1, kAttentionBlock},
                                  .b = {q_ + row * dim_, dim_, 1},
                                  .c = {dk_ + (key + column) * dim_, dim_, 1},
                                  .beta = 1},
                  products_);
  }

  void add_query_gradients(std::int64_t row, std::int64_t rows, std::int64_t key,
                           std::int64_t columns) {
    cpu::multiply(cpu::Product<C>{.m = rows,
                                  .n = g_.dim,
                                  .k = columns,
                                  .a = {dscores_ + row * kAttentionBlock, kAttentionBlock, 1},
                                  .b = {k_ + key * dim_, dim_, 1},
                                  .c = {dq_ + row * dim_, dim_, 1},
                                  .beta = 1},
                  products_);
  }

  const AttentionBackwardKernel::Args& args_;
  const AttentionGeometry& g_;
  std::int64_t batch_, kv_head_, key_rows_, dim_, value_dim_;
  C* k_;
  C* v_;
  C* dk_;
  C* dv_;
  C* q_;
  C* dq_;
  C* dout_;
  C* scores_;
  C* dscores_;
  C* log_sum_exp_;
  C* dot_;
  C* row_;
  Workspace products_;
};

}  // namespace

void AttentionBackwardKernel::cpu(const Args& a, Workspace scratch) {
  const AttentionGeometry g(a.q, a.k, a.v);
  with_floating_type(g.compute, [&]<class C>() {
    cpu::parallel_units(
        g.batch * g.kv_heads, g.backward_share(), scratch,
        [&](std::int64_t unit, Workspace mine) { KeyValueHead<C>(a, g, unit, mine).run(); });
  });
}

}  // namespace tessera
