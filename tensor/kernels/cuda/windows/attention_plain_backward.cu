#include <algorithm>
#include <limits>

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/cuda/start.h"
#include "tessera/tensor/kernels/cuda/windows/attention_layout.h"
#include "tessera/tensor/kernels/cuda/windows/attention_tiles.h"
#include "tessera/tensor/kernels/cuda/windows/plain.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

using cuda::AttentionTile;
using cuda::kAttentionThreads;

// With P the probabilities, M the dropout factors and D the row sums of dout * out:
//     dP = M * (dout v^T)    dS = P * (dP - D)
//     dv = (P * M)^T dout    dk = scale dS^T q    dq = scale dS k
// P is recomputed from log_sum_exp. Each gradient is summed by one block in one order.
template <class C>
struct BackwardWork {
  cuda::AttentionExtents extents;
  cuda::AttentionUnits units;
  cuda::ScoreRule<C> rule;
  cuda::HeadView dout, q, k, v, out;
  cuda::HeadOutput dq, dk, dv;
  const C* log_sum_exp = nullptr;
  C* dots = nullptr;  // D
};

template <class C>
struct RowNumbers {
  C log_sum_exp, dot;
};

// For one query of a head; the scores of a row without keys are -inf, and give zeros relative to 0.
template <class C>
__device__ RowNumbers<C> row_numbers(const BackwardWork<C>& work, std::int64_t head_row,
                                     std::int64_t query) {
  if (query >= work.extents.queries) return {C{0}, C{0}};
  const C saved = work.log_sum_exp[head_row + query];
  return {saved == -std::numeric_limits<C>::infinity() ? C{0} : saved, work.dots[head_row + query]};
}

// One warp per row.
template <class C>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    dots_kernel(const __grid_constant__ BackwardWork<C> work) {
  const cuda::AttentionExtents& e = work.extents;
  constexpr int kWarps = kAttentionThreads / cuda::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const std::int64_t rows = e.batch * e.heads * e.queries;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / cuda::kWarpSize;
       row < rows; row += std::int64_t{gridDim.x} * kWarps) {
    const std::int64_t query = row % e.queries, head = row / e.queries % e.heads,
                       batch = row / e.queries / e.heads;
    const std::int64_t a = cuda::head_offset(e, work.dout.strides, batch, head) +
                           query * work.dout.strides.row,
                       b = cuda::head_offset(e, work.out.strides, batch, head) +
                           query * work.out.strides.row;
    C sum{0};
    cuda::with_element_of<C>(work.dout.dtype, [&]<class T>() {
      const T* x = static_cast<const T*>(work.dout.data) + a;
      const T* y = static_cast<const T*>(work.out.data) + b;
      for (std::int64_t i = lane; i < e.value_dim; i += cuda::kWarpSize) {
        sum = scalar::fma(convert_element<C>(x[i * work.dout.strides.column]),
                          convert_element<C>(y[i * work.out.strides.column]), sum);
      }
    });
    sum = cuda::warp_fold(sum, [](C x, C y) { return x + y; });
    if (lane == 0) work.dots[row] = sum;
  }
}

// P * M and dS of a pair with masked score `score`; `product` is dout v^T.
template <class C>
struct PairGradients {
  C weight, dscore;

  __device__ PairGradients(C score, C product, const RowNumbers<C>& row, C factor) {
    const C p = scalar::exp(score - row.log_sum_exp);
    weight = p * factor;
    dscore = p * scalar::fma(factor, product, -row.dot);
  }
};

template <class C>
__device__ cuda::Side<C> rows_of(const cuda::HeadView& view, std::int64_t offset, std::int64_t row,
                                 std::int64_t rows, std::int64_t columns) {
  return {.view = view, .window = {.offset = offset, .row = row, .rows = rows, .columns = columns}};
}

template <class C>
__device__ void store_columns(const cuda::HeadOutput& to, std::int64_t offset, std::int64_t row,
                              std::int64_t rows, const cuda::Columns<C>& sums, std::int64_t column,
                              std::int64_t columns) {
  cuda::with_element_of<C>(to.dtype, [&]<class T>() {
    T* out = static_cast<T*>(to.data) + offset;
#pragma unroll
    for (int i = 0; i < AttentionTile<C>::kLane; ++i) {
      if (row + i >= rows) continue;
      cuda::for_columns<C>([&](int c, int in_chunk) {
        if (column + in_chunk >= columns) return;
        out[(row + i) * to.strides.row + (column + in_chunk) * to.strides.column] =
            convert_element<T>(sums[i][c]);
      });
    }
  });
}

// dq of one tile of queries and one chunk of columns: rows are queries, columns keys.
template <class C>
__device__ void query_gradient(const BackwardWork<C>& work, const cuda::AttentionPlace& place,
                               C* chunks, C* weights) {
  using Tile = AttentionTile<C>;
  const cuda::AttentionExtents& e = work.extents;
  const std::int64_t first = place.tile * Tile::kSide, kv_head = place.head / e.group();
  const cuda::HeadRule<C> rule(work.rule, e, place.batch, place.head);
  const auto head = [&](const cuda::HeadStrides& strides) {
    return cuda::head_offset(e, strides, place.batch, place.head);
  };
  const std::int64_t k_offset = cuda::head_offset(e, work.k.strides, place.batch, kv_head),
                     v_offset = cuda::head_offset(e, work.v.strides, place.batch, kv_head);
  cuda::Side<C> q = rows_of<C>(work.q, head(work.q.strides), first, e.queries, e.dim);
  q.factor = work.rule.scale;
  const cuda::Side<C> dout =
      rows_of<C>(work.dout, head(work.dout.strides), first, e.queries, e.value_dim);
  const std::int64_t query = first + cuda::tile_row_thread() * Tile::kLane,
                     head_row = (place.batch * e.heads + place.head) * e.queries;
  const std::int64_t last = first + Tile::kSide < e.queries ? first + Tile::kSide : e.queries,
                     end = cuda::visible_keys(work.rule, last, e.keys);
  cuda::Columns<C> sums = {};
  for (std::int64_t key = 0; key < end; key += Tile::kSide) {
    cuda::Scores<C> scores, products;
    cuda::Side<C> k = rows_of<C>(work.k, k_offset, key, e.keys, e.dim);
    cuda::multiply_rows<C>(scores, chunks, q, k);
    cuda::multiply_rows<C>(products, chunks, dout,
                           rows_of<C>(work.v, v_offset, key, e.keys, e.value_dim));
    const std::int64_t my_key = key + cuda::tile_column_thread() * Tile::kLane;
#pragma unroll
    for (int i = 0; i < Tile::kLane; ++i) {
      const RowNumbers<C> row = row_numbers(work, head_row, query + i);
      cuda::Pack<C> factors;
#pragma unroll
      for (C& factor : factors.values) factor = C{1};
      if (work.rule.drops) factors = rule.factors(query + i, my_key);
#pragma unroll
      for (int j = 0; j < Tile::kLane; ++j) {
        const C score = rule.score(query + i, my_key + j, scores[i][j]);
        scores[i][j] = PairGradients<C>(score, products[i][j], row, factors.values[j]).dscore;
      }
    }
    cuda::store_weights(weights, scores);
    k.window.column = place.chunk * Tile::kColumns;
    cuda::add_weighted_rows<C>(sums, weights, chunks, k);
  }
#pragma unroll
  for (auto& row : sums)
    for (C& sum : row) sum *= work.rule.scale;
  store_columns<C>(work.dq, head(work.dq.strides), query, e.queries, sums,
                   place.chunk * Tile::kColumns, e.dim);
}

template <class C>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    dq_kernel(const __grid_constant__ BackwardWork<C> work) {
  __shared__ cuda::Pack<C> chunks[cuda::kChunkPacks<C>];
  __shared__ cuda::Pack<C> weights[cuda::kWeightPacks<C>];
  for (std::int64_t unit = blockIdx.x; unit < work.units.count(); unit += gridDim.x) {
    query_gradient(work, cuda::attention_place(work.units, unit), chunks->values, weights->values);
  }
}

// Gradients of one tile of keys and values, one chunk of columns of each: rows are keys, columns
// the queries of all heads of the group.
template <class C>
struct KeyTile {
  const BackwardWork<C>& work;
  const cuda::AttentionPlace place;
  C* chunks;
  C* weights;
  cuda::Columns<C> dk = {};
  cuda::Columns<C> dv = {};

  using Tile = AttentionTile<C>;

  __device__ KeyTile(const BackwardWork<C>& work, const cuda::AttentionPlace& place, C* chunks,
                     C* weights)
      : work(work), place(place), chunks(chunks), weights(weights) {}

  __device__ std::int64_t first_key() const { return place.tile * Tile::kSide; }
  __device__ std::int64_t my_key() const {
    return first_key() + cuda::tile_row_thread() * Tile::kLane;
  }
  __device__ std::int64_t head_of(const cuda::HeadStrides& strides, std::int64_t head) const {
    return cuda::head_offset(work.extents, strides, place.batch, head);
  }

  __device__ void run() {
    const cuda::AttentionExtents& e = work.extents;
    const std::int64_t group = e.group();
    for (std::int64_t head = place.head * group; head < (place.head + 1) * group; ++head) {
      const std::int64_t first = cuda::first_query(work.rule, first_key()) / Tile::kSide;
      for (std::int64_t query = first * Tile::kSide; query < e.queries; query += Tile::kSide)
        add_queries(head, query);
    }
    const std::int64_t column = place.chunk * Tile::kColumns;
    store_columns<C>(work.dk, head_of(work.dk.strides, place.head), my_key(), e.keys, dk, column,
                     e.dim);
    store_columns<C>(work.dv, head_of(work.dv.strides, place.head), my_key(), e.keys, dv, column,
                     e.value_dim);
  }

  __device__ void add_queries(std::int64_t head, std::int64_t query) {
    const cuda::AttentionExtents& e = work.extents;
    cuda::Side<C> q = rows_of<C>(work.q, head_of(work.q.strides, head), query, e.queries, e.dim);
    q.factor = work.rule.scale;
    cuda::Side<C> dout =
        rows_of<C>(work.dout, head_of(work.dout.strides, head), query, e.queries, e.value_dim);
    cuda::Scores<C> scores, products;
    cuda::multiply_rows<C>(
        scores, chunks,
        rows_of<C>(work.k, head_of(work.k.strides, place.head), first_key(), e.keys, e.dim), q);
    cuda::multiply_rows<C>(
        products, chunks,
        rows_of<C>(work.v, head_of(work.v.strides, place.head), first_key(), e.keys, e.value_dim),
        dout);
    differentiate(head, query, scores, products);
    // The memory of the weights is reused: this barrier separates the two uses.
    cuda::store_weights(weights, scores);
    dout.window.column = place.chunk * Tile::kColumns;
    cuda::add_weighted_rows<C>(dv, weights, chunks, dout);
    __syncthreads();
    cuda::store_weights(weights, products);
    q.window.column = place.chunk * Tile::kColumns;
    cuda::add_weighted_rows<C>(dk, weights, chunks, q);
  }

  // Turns scores into P * M and products into dS.
  __device__ void differentiate(std::int64_t head, std::int64_t query, cuda::Scores<C>& scores,
                                cuda::Scores<C>& products) {
    const cuda::AttentionExtents& e = work.extents;
    const cuda::HeadRule<C> rule(work.rule, e, place.batch, head);
    const std::int64_t head_row = (place.batch * e.heads + head) * e.queries,
                       my_query = query + cuda::tile_column_thread() * Tile::kLane;
#pragma unroll
    for (int j = 0; j < Tile::kLane; ++j) {
      const RowNumbers<C> row = row_numbers(work, head_row, my_query + j);
      cuda::Pack<C> factors;
#pragma unroll
      for (C& factor : factors.values) factor = C{1};
      if (work.rule.drops) factors = rule.factors(my_query + j, my_key());
#pragma unroll
      for (int i = 0; i < Tile::kLane; ++i) {
        const C score = rule.score(my_query + j, my_key() + i, scores[i][j]);
        const PairGradients<C> pair(score, products[i][j], row, factors.values[i]);
        scores[i][j] = pair.weight;
        products[i][j] = pair.dscore;
      }
    }
  }
};

template <class C>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    dkv_kernel(const __grid_constant__ BackwardWork<C> work) {
  __shared__ cuda::Pack<C> chunks[cuda::kChunkPacks<C>];
  __shared__ cuda::Pack<C> weights[cuda::kWeightPacks<C>];
  for (std::int64_t unit = blockIdx.x; unit < work.units.count(); unit += gridDim.x) {
    KeyTile<C> tile(work, cuda::attention_place(work.units, unit), chunks->values, weights->values);
    tile.run();
  }
}

template <class C>
BackwardWork<C> backward_work(const AttentionBackwardKernel::Args& a, const AttentionGeometry& g,
                              Workspace scratch) {
  return {.extents = cuda::attention_extents(g),
          .units = {},
          .rule = cuda::score_rule<C>(a.rule),
          .dout = cuda::head_view(a.dout),
          .q = cuda::head_view(a.q),
          .k = cuda::head_view(a.k),
          .v = cuda::head_view(a.v),
          .out = cuda::head_view(a.out),
          .dq = cuda::head_output(a.dq),
          .dk = cuda::head_output(a.dk),
          .dv = cuda::head_output(a.dv),
          .log_sum_exp = a.log_sum_exp.as<C>(),
          .dots = static_cast<C*>(scratch.data)};
}

template <class C, class Kernel>
void launch_units(Kernel kernel, CudaStream stream, BackwardWork<C>& work,
                  const cuda::AttentionUnits& units) {
  if (units.count() == 0) return;
  work.units = units;
  cuda::start(AttentionBackwardKernel::kName, kernel,
              {.blocks = cuda::attention_blocks(units), .threads = kAttentionThreads}, stream,
              work);
}

}  // namespace

std::size_t cuda::plain_attention_backward_bytes(const AttentionBackwardKernel::Args& a) {
  return static_cast<std::size_t>(a.log_sum_exp.numel()) * dtype_size(a.log_sum_exp.dtype);
}

void cuda::plain_attention_backward(CudaStream stream, const AttentionBackwardKernel::Args& a,
                                    Workspace scratch) {
  const AttentionGeometry g(a.q, a.k, a.v);
  with_floating_type(g.compute, [&]<class C>() {
    BackwardWork<C> work = backward_work<C>(a, g, scratch);
    const std::int64_t rows = g.batch * g.heads * g.queries;
    if (rows > 0) {
      const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((rows + 7) / 8, 0x7fffffff));
      start(AttentionBackwardKernel::kName, dots_kernel<C>,
            {.blocks = blocks, .threads = kAttentionThreads}, stream, work);
    }
    launch_units<C>(dq_kernel<C>, stream, work,
                    attention_units(g.batch, g.heads, g.queries, g.dim, g.compute));
    launch_units<C>(
        dkv_kernel<C>, stream, work,
        attention_units(g.batch, g.kv_heads, g.keys, std::max(g.dim, g.value_dim), g.compute));
  });
}

}  // namespace tessera
