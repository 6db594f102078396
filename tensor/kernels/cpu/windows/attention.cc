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
    cpu::pack_rows(args_.k, cpu::head_of(args_.k, batch_, kv_head), key, n, columns, C{1}, k_,
                   dim_);
    cpu::pack_rows(args_.v, cpu::head_of(args_.v, batch_, kv_head), key, n, columns, C{1}, v_,
                   value_dim_);
    cpu::multiply(cpu::Product<C>{.m = rows_,
                                  .n = columns,
                                  .k = g_.dim,
                                  .a = {q_, dim_, 1},
                                  .b = {k_, 1, dim_},
                                  .c = {scores_, kAttentionBlock, 1}},
                  products_);
    const cpu::HeadRule<C> rule(args_.rule, g_.probabilities, batch_, head_);
    for (std::int64_t r = 0; r < count_; ++r) {
      C* scores = scores_ + r * kAttentionBlock;
      rule.mask_row(first_ + r, key, n, columns, scores);
      normalize(r, columns, scores);
      if (rule.drops()) drop(rule, first_ + r, key, n, scores);
    }
    cpu::multiply(cpu::Product<C>{.m = rows_,
                                  .n = g_.value_dim,
                                  .k = columns,
                                  .a = {scores_, kAttentionBlock, 1},
                                  .b = {v_, value_dim_, 1},
                                  .c = {out_, value_dim_, 1},
                                  .beta = 1},
                  products_);
  }

  // Exponentials of a row relative to the largest score so far.
  void normalize(std::int64_t r, std::int64_t n, C* scores) {
    constexpr C kNever = -std::numeric_limits<C>::infinity();
    const C largest = std::max(largest_[r], cpu::row_max(scores, n));
    const C shift = largest == kNever ? C{0} : largest;  // a row without keys so far; or only NaN
    cpu::exp_run(n, scores, shift, scores);
    const C rescale = scalar::exp(largest_[r] - shift);
    const C sum = cpu::lane_sum<C>(n, [=](std::int64_t i) { return scores[i]; });
    total_[r] = scalar::fma(total_[r], rescale, sum);
    largest_[r] = largest;
    if (rescale == C{1}) return;
    C* out = out_ + r * value_dim_;
    for (std::int64_t i = 0; i < g_.value_dim; ++i) out[i] *= rescale;
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
