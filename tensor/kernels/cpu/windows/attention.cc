#include "tessera/tensor/kernels/attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/cpu/exp_run.h"
#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/cpu/windows/attention_block.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

using cpu::Head;
using cpu::kAttentionBlock;

// One block of queries of one head, against all its keys.
template <class C>
class QueryBlock {
 public:
  QueryBlock(const AttentionKernel::Args& args, const AttentionGeometry& g, std::int64_t unit,
             Workspace scratch)
      : args_(args),
        g_(g),
        batch_(unit / g.query_blocks() / g.heads),
        head_(unit / g.query_blocks() % g.heads),
        first_(unit % g.query_blocks() * kAttentionBlock),
        count_(std::min(kAttentionBlock, g.queries - first_)),
        rows_(AttentionGeometry::block_rows(count_)),
        dim_(padded(g.dim)),
        value_dim_(padded(g.value_dim)) {
    cpu::ScratchCutter cut(scratch);
    q_ = cut.take<C>(kAttentionBlock * dim_);
    k_ = cut.take<C>(kAttentionBlock * dim_);
    v_ = cut.take<C>(kAttentionBlock * value_dim_);
    out_ = cut.take<C>(kAttentionBlock * value_dim_);
    scores_ = cut.take<C>(kAttentionBlock * kAttentionBlock);
    largest_ = cut.take<C>(kAttentionBlock);
    total_ = cut.take<C>(kAttentionBlock);
    products_ = cut.rest(g.products_share());
  }

  void run() {
    const auto scale = static_cast<C>(args_.rule.scale);
    cpu::pack_rows(args_.q, cpu::head_of(args_.q, batch_, head_), first_, count_, rows_, scale, q_,
                   dim_);
    std::fill_n(out_, rows_ * value_dim_, C{0});
    std::fill_n(largest_, count_, -std::numeric_limits<C>::infinity());
    std::fill_n(total_, count_, C{0});
    const std::int64_t end = args_.rule.visible_end(first_ + count_, g_.keys);
    for (std::int64_t key = 0; key < end; key += kAttentionBlock) add_keys(key);
    store();
  }

 private:
  // Adds keys [key, key + kAttentionBlock): the previous sums are scaled to the new maximum.
  void add_keys(std::int64_t key) {
    const std::int64_t n = std::min(kAttentionBlock, g_.keys - key),
                       columns = AttentionGeometry::block_rows(n), kv_head = head_ / g_.group();
    const cpu::Operand<const C> k = cpu::rows_of(args_.k, cpu::head_of(args_.k, batch_, kv_head),
                                                 key, n, columns, k_, dim_),
                                v = cpu::rows_of(args_.v, cpu::head_of(args_.v, batch_, kv_head),
                                                 key, n, columns, v_, value_dim_);
    const cpu::HeadRule<C> rule(args_.rule, g_.probabilities, batch_, head_);
    const cpu::VisibleGroups<C> groups(args_.rule, first_, rows_, key, columns);
    groups.for_rows([&](std::int64_t row, std::int64_t rows, std::int64_t seen) {
      C* const scores = scores_ + row * kAttentionBlock;
      cpu::multiply(cpu::Product<C>{.m = rows,
                                    .n = seen,
                                    .k = g_.dim,
                                    .a = {q_ + row * dim_, dim_, 1},
                                    .b = k.transposed(),
                                    .c = {scores, kAttentionBlock, 1}},
                    products_);
      add_rows(rule, row, std::min(row + rows, count_), key, std::min(n, seen), seen);
      cpu::multiply(cpu::Product<C>{.m = rows,
                                    .n = g_.value_dim,
                                    .k = seen,
                                    .a = {scores, kAttentionBlock, 1},
                                    .b = v,
                                    .c = {out_ + row * value_dim_, value_dim_, 1},
                                    .beta = 1},
                    products_);
    });
  }

  // Rows [row, end) of scores become probabilities of n keys relative to the largest score of a row so far. Step by step for all
  // rows: the CPU folds several rows at once.
  void add_rows(const cpu::HeadRule<C>& rule, std::int64_t row, std::int64_t end, std::int64_t key,
                std::int64_t n, std::int64_t columns) {
    constexpr C kNever = -std::numeric_limits<C>::infinity();
    C shift[kAttentionBlock], rescale[kAttentionBlock];
    for (std::int64_t r = row; r < end; ++r) {
      C* const scores = scores_ + r * kAttentionBlock;
      rule.mask_row(first_ + r, key, n, columns, scores);
      const C largest = std::max(largest_[r], cpu::row_max(scores, columns));
      shift[r] = largest == kNever ? C{0} : largest;  // a row without keys so far; or only NaN
      rescale[r] = largest_[r] - shift[r];
      largest_[r] = largest;
    }
    cpu::exp_run(end - row, rescale + row, C{0}, rescale + row);
    for (std::int64_t r = row; r < end; ++r)
      cpu::exp_run(columns, scores_ + r * kAttentionBlock, shift[r], scores_ + r * kAttentionBlock);
    for (std::int64_t r = row; r < end; ++r) {
      C* const scores = scores_ + r * kAttentionBlock;
      const C sum = cpu::lane_sum<C>(columns, [=](std::int64_t i) { return scores[i]; });
      total_[r] = scalar::fma(total_[r], rescale[r], sum);
      scale_output(r, rescale[r]);
      if (rule.drops()) drop(rule, first_ + r, key, n, scores);
    }
  }

  void scale_output(std::int64_t r, C factor) {
    if (factor == C{1}) return;
    C* const out = out_ + r * value_dim_;
    for (std::int64_t i = 0; i < g_.value_dim; ++i) out[i] *= factor;
  }

  static void drop(const cpu::HeadRule<C>& rule, std::int64_t query, std::int64_t key,
                   std::int64_t n, C* probabilities) {
    C factors[kAttentionBlock];
    rule.keep_factors(query, key, n, factors);
    for (std::int64_t i = 0; i < n; ++i) probabilities[i] *= factors[i];
  }

  void store() {
    const Head to = cpu::head_of(args_.out, batch_, head_);
    C* log_sum_exp = args_.log_sum_exp.as<C>() + (batch_ * g_.heads + head_) * g_.queries + first_;
    for (std::int64_t r = 0; r < count_; ++r) {
      C* out = out_ + r * value_dim_;
      if (total_[r] == C{0}) {
        std::fill_n(out, g_.value_dim, C{0});
      } else {
        for (std::int64_t i = 0; i < g_.value_dim; ++i) out[i] /= total_[r];
      }
      cpu::store_row(args_.out, to, first_ + r, out);
      log_sum_exp[r] = largest_[r] + scalar::log(total_[r]);
    }
  }

  const AttentionKernel::Args& args_;
  const AttentionGeometry& g_;
  std::int64_t batch_, head_, first_, count_, rows_, dim_, value_dim_;
  C* q_;
  C* k_;
  C* v_;
  C* out_;
  C* scores_;
  C* largest_;
  C* total_;
  Workspace products_;
};

}  // namespace

void AttentionKernel::cpu(const Args& a, Workspace scratch) {
  const AttentionGeometry g(a.q, a.k, a.v);
  with_floating_type(g.compute, [&]<class C>() {
    cpu::parallel_units(
        g.batch * g.heads * g.query_blocks(), g.forward_share(), scratch,
        [&](std::int64_t unit, Workspace mine) { QueryBlock<C>(a, g, unit, mine).run(); });
  });
}

}  // namespace tessera
