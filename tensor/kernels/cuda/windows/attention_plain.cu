#include "tessera/tensor/kernels/cuda/windows/plain.h"

#include <algorithm>
#include <limits>

#include "tessera/tensor/cuda/start.h"
#include "tessera/tensor/kernels/cuda/windows/attention_layout.h"
#include "tessera/tensor/kernels/cuda/windows/attention_tiles.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

using cuda::AttentionTile;
using cuda::kAttentionThreads;

template <class C>
struct ForwardWork {
  cuda::AttentionExtents extents;
  cuda::AttentionUnits units;
  cuda::ScoreRule<C> rule;
  cuda::HeadView q, k, v;
  cuda::HeadOutput out;
  C* log_sum_exp = nullptr;
};

// A thread's state for its rows of queries.
template <class C>
struct QueryRows {
  C largest[AttentionTile<C>::kLane];
  C total[AttentionTile<C>::kLane];
  cuda::Columns<C> sums = {};

  __device__ QueryRows() {
#pragma unroll
    for (int i = 0; i < AttentionTile<C>::kLane; ++i) {
      largest[i] = -std::numeric_limits<C>::infinity();
      total[i] = C{0};
    }
  }

  // Turns the scores of row i into exponentials relative to the largest so far; the previous sums
  // are rescaled to it.
  __device__ void normalize(int i, C (&scores)[AttentionTile<C>::kLane]) {
    constexpr C kNever = -std::numeric_limits<C>::infinity();
    C most = largest[i];
#pragma unroll
    for (const C score : scores) most = score > most ? score : most;
    most = cuda::warp_fold<16>(most, [](C a, C b) { return a > b ? a : b; });
    const C shift = most == kNever ? C{0} : most;  // a row without keys so far
    C sum{0};
#pragma unroll
    for (C& score : scores) {
      score = scalar::exp(score - shift);
      sum += score;
    }
    sum = cuda::warp_fold<16>(sum, [](C a, C b) { return a + b; });
    const C rescale = scalar::exp(largest[i] - shift);
    total[i] = scalar::fma(total[i], rescale, sum);
    largest[i] = most;
#pragma unroll
    for (C& value : sums[i]) value *= rescale;
  }
};

// One tile of queries of one head and one chunk of the result's columns, with all keys.
template <class C>
__device__ void attend(const ForwardWork<C>& work, const cuda::AttentionPlace& place, C* chunks,
                       C* weights, QueryRows<C>& rows) {
  using Tile = AttentionTile<C>;
  const cuda::AttentionExtents& e = work.extents;
  const std::int64_t first = place.tile * Tile::kSide, kv_head = place.head / e.group();
  const cuda::HeadRule<C> rule(work.rule, e, place.batch, place.head);
  const cuda::Side<C> q{
      .view = work.q,
      .window = {.offset = cuda::head_offset(e, work.q.strides, place.batch, place.head),
                 .row = first,
                 .rows = e.queries,
                 .columns = e.dim},
      .factor = work.rule.scale};
  const std::int64_t k_offset = cuda::head_offset(e, work.k.strides, place.batch, kv_head),
                     v_offset = cuda::head_offset(e, work.v.strides, place.batch, kv_head);
  const std::int64_t last = first + Tile::kSide < e.queries ? first + Tile::kSide : e.queries,
                     end = cuda::visible_keys(work.rule, last, e.keys);
  const std::int64_t query = first + cuda::tile_row_thread() * Tile::kLane;
  for (std::int64_t key = 0; key < end; key += Tile::kSide) {
    cuda::Scores<C> scores;
    cuda::multiply_rows<C>(
        scores, chunks, q,
        {.view = work.k,
         .window = {.offset = k_offset, .row = key, .rows = e.keys, .columns = e.dim}});
    const std::int64_t my_key = key + cuda::tile_column_thread() * Tile::kLane;
#pragma unroll
    for (int i = 0; i < Tile::kLane; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kLane; ++j)
        scores[i][j] = rule.score(query + i, my_key + j, scores[i][j]);
      rows.normalize(i, scores[i]);
      if (!work.rule.drops) continue;
      const cuda::Pack<C> factors = rule.factors(query + i, my_key);
#pragma unroll
      for (int j = 0; j < Tile::kLane; ++j) scores[i][j] *= factors.values[j];
    }
    cuda::store_weights(weights, scores);
    cuda::add_weighted_rows<C>(rows.sums, weights, chunks,
                               {.view = work.v,
                                .window = {.offset = v_offset,
                                           .row = key,
                                           .rows = e.keys,
                                           .column = place.chunk * Tile::kColumns,
                                           .columns = e.value_dim}});
  }
}

template <class C>
__device__ void store_rows(const ForwardWork<C>& work, const cuda::AttentionPlace& place,
                           const QueryRows<C>& rows) {
  using Tile = AttentionTile<C>;
  const cuda::AttentionExtents& e = work.extents;
  const std::int64_t offset = cuda::head_offset(e, work.out.strides, place.batch, place.head);
  cuda::with_element_of<C>(work.out.dtype, [&]<class T>() {
    T* out = static_cast<T*>(work.out.data) + offset;
#pragma unroll
    for (int i = 0; i < Tile::kLane; ++i) {
      const std::int64_t query =
          place.tile * Tile::kSide + cuda::tile_row_thread() * Tile::kLane + i;
      if (query >= e.queries) continue;
      const C total = rows.total[i];
      cuda::for_columns<C>([&](int c, int in_chunk) {
        const std::int64_t column = place.chunk * Tile::kColumns + in_chunk;
        if (column >= e.value_dim) return;
        const C value = total == C{0} ? C{0} : rows.sums[i][c] / total;
        out[query * work.out.strides.row + column * work.out.strides.column] =
            convert_element<T>(value);
      });
      if (place.chunk == 0 && cuda::tile_column_thread() == 0) {
        work.log_sum_exp[(place.batch * e.heads + place.head) * e.queries + query] =
            rows.largest[i] + scalar::log(total);
      }
    }
  });
}

template <class C>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_kernel(const __grid_constant__ ForwardWork<C> work) {
  __shared__ cuda::Pack<C> chunks[cuda::kChunkPacks<C>];
  __shared__ cuda::Pack<C> weights[cuda::kWeightPacks<C>];
  for (std::int64_t unit = blockIdx.x; unit < work.units.count(); unit += gridDim.x) {
    const cuda::AttentionPlace place = cuda::attention_place(work.units, unit);
    QueryRows<C> rows;
    attend(work, place, chunks->values, weights->values, rows);
    store_rows(work, place, rows);
  }
}

}  // namespace

void cuda::plain_attention(CudaStream stream, const AttentionKernel::Args& a) {
  const AttentionGeometry g(a.q, a.k, a.v);
  const AttentionUnits units = attention_units(g.batch, g.heads, g.queries, g.value_dim, g.compute);
  if (units.count() == 0) return;
  with_floating_type(g.compute, [&]<class C>() {
    const ForwardWork<C> work{.extents = attention_extents(g),
                              .units = units,
                              .rule = score_rule<C>(a.rule),
                              .q = head_view(a.q),
                              .k = head_view(a.k),
                              .v = head_view(a.v),
                              .out = head_output(a.out),
                              .log_sum_exp = a.log_sum_exp.as<C>()};
    start(AttentionKernel::kName, attention_kernel<C>,
          {.blocks = attention_blocks(units), .threads = kAttentionThreads}, stream, work);
  });
}

}  // namespace tessera
