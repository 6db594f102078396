#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graphs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/tensor/kernels/cuda/cudnn/paths.h"

namespace tessera::cuda {
namespace {

using Id = CudnnGraph::Id;
using Strides = AttentionProblem::Strides;

template <class AnyView>
Strides strides_of(const AnyView& x) {
  const int last = x.shape.ndim() - 1;
  return {detail::batch_stride(x.shape, x.strides), x.strides[last - 2], x.strides[last - 1],
          x.strides[last]};
}

AttentionProblem problem_of(const ConstView& q, const ConstView& k, const ConstView& v,
                            const AttentionRule& rule) {
  const AttentionGeometry g(q, k, v);
  AttentionProblem p{.dtype = q.dtype,
                     .batch = g.batch,
                     .heads = g.heads,
                     .kv_heads = g.kv_heads,
                     .queries = g.queries,
                     .keys = g.keys,
                     .dim = g.dim,
                     .value_dim = g.value_dim,
                     .q = strides_of(q),
                     .k = strides_of(k),
                     .v = strides_of(v)};
  if (rule.causal) {
    p.causal = rule.diagonal == 0 ? CausalKind::kTopLeft : CausalKind::kBottomRight;
  }
  return p;
}

std::vector<std::int64_t> vector_of(const Strides& strides) {
  return {strides.begin(), strides.end()};
}

// Adds the tensors and the operations of one problem.
class Builder {
 public:
  Builder(CudnnGraph& graph, const AttentionProblem& problem) : g_(graph), p_(problem) {}

  Id operand(std::int64_t heads, std::int64_t length, std::int64_t dim, const Strides& strides) {
    return g_.tensor({.dtype = cudnn_dtype(p_.dtype),
                      .shape = {p_.batch, heads, length, dim},
                      .strides = vector_of(strides),
                      .kind = CudnnTensorKind::kReal});
  }
  // The same memory with its last two dims transposed.
  Id transposed(std::int64_t heads, std::int64_t length, std::int64_t dim, Strides strides) {
    std::swap(strides[2], strides[3]);
    return operand(heads, dim, length, strides);
  }
  Id rows(CudnnTensorKind kind) {
    // Slices may begin at any row.
    return g_.tensor({.shape = {p_.batch, p_.heads, p_.queries, 1},
                      .strides = {},
                      .kind = kind,
                      .alignment = sizeof(float)});
  }
  Id scores(cudnnDataType_t dtype = CUDNN_DATA_FLOAT) {
    return g_.tensor(
        {.dtype = dtype, .shape = {p_.batch, p_.heads, p_.queries, p_.keys}, .strides = {}});
  }
  Id map(cudnnPointwiseMode_t mode, Id x, Id b, Id y) {
    g_.pointwise(mode, {.x = x, .b = b}, y);
    return y;
  }

  // scale * q k^T under the causal rule, minus `less` if it is given. `kt` is k transposed.
  Id ruled_scores(AttentionIds& ids, Id kt, Id less) {
    const Id products = scores();
    g_.matmul(ids.q, kt, products);
    ids.scale = g_.number(CUDNN_DATA_FLOAT, 4);
    Id s = map(CUDNN_POINTWISE_MUL, products, ids.scale, scores());
    if (less >= 0) s = map(CUDNN_POINTWISE_SUB, s, less, scores());
    return p_.causal == CausalKind::kNone ? s : masked(ids, s);
  }

 private:
  Id integers(cudnnPointwiseMode_t mode, const CudnnGraph::Pointwise& in) {
    const Id y = scores(CUDNN_DATA_INT32);
    g_.pointwise(mode, in, y);
    return y;
  }

  Id masked(AttentionIds& ids, Id s) {
    Id row = integers(CUDNN_POINTWISE_GEN_INDEX, {.x = s, .axis = 2});
    const Id column = integers(CUDNN_POINTWISE_GEN_INDEX, {.x = s, .axis = 3});
    if (p_.causal == CausalKind::kBottomRight) {
      ids.keys = g_.number(CUDNN_DATA_INT32, 4);
      ids.queries = g_.number(CUDNN_DATA_INT32, 4);
      row = integers(CUDNN_POINTWISE_ADD,
                     {.x = row, .b = ids.keys, .compute = CUDNN_DATA_INT32, .axis = 3});
      row = integers(CUDNN_POINTWISE_SUB,
                     {.x = row, .b = ids.queries, .compute = CUDNN_DATA_INT32, .axis = 3});
    }
    const Id sees = scores(CUDNN_DATA_BOOLEAN);
    g_.pointwise(CUDNN_POINTWISE_CMP_GE, {.x = row, .b = column, .compute = CUDNN_DATA_BOOLEAN},
                 sees);
    ids.never = g_.number(CUDNN_DATA_FLOAT, 4);
    const Id y = scores();
    g_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {.x = s, .b = ids.never, .t = sees}, y);
    return y;
  }

  CudnnGraph& g_;
  const AttentionProblem& p_;
};

// weights^T times the rows of `right`, summed over the heads of a group: the gradient of keys or
// values.
void add_key_gradient(CudnnGraph& g, const AttentionProblem& p, Id weights, Id right,
                      std::pair<Id, std::int64_t> gradient) {
  const Id transposed =
      g.tensor({.dtype = cudnn_dtype(p.dtype),
                .shape = {p.batch, p.heads, p.keys, p.queries},
                .strides = {p.heads * p.queries * p.keys, p.queries * p.keys, 1, p.keys}});
  g.reshape(weights, transposed);
  const auto [result, dim] = gradient;
  if (p.heads == p.kv_heads) return g.matmul(transposed, right, result);
  const Id heads = g.tensor(
      {.dtype = cudnn_dtype(p.dtype), .shape = {p.batch, p.heads, p.keys, dim}, .strides = {}});
  g.matmul(transposed, right, heads);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, heads, result);
}

AttentionIds add_forward(CudnnGraph& g, const AttentionProblem& p) {
  Builder b(g, p);
  AttentionIds ids;
  ids.q = b.operand(p.heads, p.queries, p.dim, p.q);
  ids.k = b.transposed(p.kv_heads, p.keys, p.dim, p.k);
  ids.v = b.operand(p.kv_heads, p.keys, p.value_dim, p.v);
  ids.out = b.operand(p.heads, p.queries, p.value_dim, p.out);
  const Id s = b.ruled_scores(ids, ids.k, -1);
  const Id largest = b.rows(CudnnTensorKind::kVirtual);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, s, largest);
  const Id less = b.map(CUDNN_POINTWISE_SUB, s, largest, b.scores());
  const Id exponentials = b.map(CUDNN_POINTWISE_EXP, less, -1, b.scores());
  const Id total = b.rows(CudnnTensorKind::kVirtual);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, total);
  const Id log = b.map(CUDNN_POINTWISE_LOG, total, -1, b.rows(CudnnTensorKind::kVirtual));
  ids.log_sum_exp = b.rows(CudnnTensorKind::kReal);
  b.map(CUDNN_POINTWISE_ADD, largest, log, ids.log_sum_exp);
  const Id probabilities =
      b.map(CUDNN_POINTWISE_DIV, exponentials, total, b.scores(cudnn_dtype(p.dtype)));
  g.matmul(probabilities, ids.v, ids.out);
  return ids;
}

AttentionIds add_backward(CudnnGraph& g, const AttentionProblem& p) {
  Builder b(g, p);
  AttentionIds ids;
  ids.q = b.operand(p.heads, p.queries, p.dim, p.q);
  ids.k = b.transposed(p.kv_heads, p.keys, p.dim, p.k);
  ids.v = b.transposed(p.kv_heads, p.keys, p.value_dim, p.v);
  ids.out = b.operand(p.heads, p.queries, p.value_dim, p.out);
  ids.dout = b.operand(p.heads, p.queries, p.value_dim, p.dout);
  ids.dq = b.operand(p.heads, p.queries, p.dim, p.dq);
  ids.dk = b.operand(p.kv_heads, p.keys, p.dim, p.dk);
  ids.dv = b.operand(p.kv_heads, p.keys, p.value_dim, p.dv);
  ids.log_sum_exp = b.rows(CudnnTensorKind::kReal);
  // Row sums of dout * out.
  const Id products =
      g.tensor({.shape = {p.batch, p.heads, p.queries, p.value_dim}, .strides = {}});
  b.map(CUDNN_POINTWISE_MUL, ids.dout, ids.out, products);
  const Id sums = b.rows(CudnnTensorKind::kVirtual);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  ids.one = g.number(CUDNN_DATA_FLOAT, 4);
  ids.dots = b.rows(CudnnTensorKind::kReal);
  b.map(CUDNN_POINTWISE_MUL, sums, ids.one, ids.dots);
  // P, and dv = P^T dout.
  const Id shifted = b.ruled_scores(ids, ids.k, ids.log_sum_exp);
  const Id probabilities = b.map(CUDNN_POINTWISE_EXP, shifted, -1, b.scores());
  add_key_gradient(g, p, probabilities, ids.dout, {ids.dv, p.value_dim});
  // dS = scale P * (dout v^T - D), dk = dS^T q, dq = dS k.
  const Id dp = b.scores();
  g.matmul(ids.dout, ids.v, dp);
  const Id centered = b.map(CUDNN_POINTWISE_SUB, dp, ids.dots, b.scores());
  const Id unscaled = b.map(CUDNN_POINTWISE_MUL, centered, probabilities, b.scores());
  const Id ds = b.map(CUDNN_POINTWISE_MUL, unscaled, ids.scale, b.scores(cudnn_dtype(p.dtype)));
  add_key_gradient(g, p, ds, ids.q, {ids.dk, p.dim});
  const Id k = g.tensor({.dtype = cudnn_dtype(p.dtype),
                         .shape = {p.batch, p.kv_heads, p.keys, p.dim},
                         .strides = vector_of(p.k)});
  g.reshape(ids.k, k);
  // A product that is written directly has sums in a fixed order, and needs dS in memory. Into an
  // f32 tensor in between cuDNN adds with atomics while it computes dS; the plan's notes do not
  // mention it.
  if (p.fixed_order) {
    g.matmul(ds, k, ids.dq);
    return ids;
  }
  ids.dq_sums = g.tensor({.shape = {p.batch, p.heads, p.queries, p.dim},
                          .strides = {},
                          .kind = CudnnTensorKind::kReal});
  g.matmul(ds, k, ids.dq_sums);
  b.map(CUDNN_POINTWISE_IDENTITY, ids.dq_sums, -1, ids.dq);
  return ids;
}

}  // namespace

AttentionProblem attention_problem(const AttentionKernel::Args& a, int device) {
  AttentionProblem p = problem_of(a.q, a.k, a.v, a.rule);
  p.device = device;
  p.out = strides_of(a.out);
  return p;
}

AttentionProblem attention_problem(const AttentionBackwardKernel::Args& a, int device) {
  AttentionProblem p = problem_of(a.q, a.k, a.v, a.rule);
  p.device = device;
  p.backward = true;
  p.fixed_order = a.fixed_order;
  p.out = strides_of(a.out);
  p.dout = strides_of(a.dout);
  p.dq = strides_of(a.dq);
  p.dk = strides_of(a.dk);
  p.dv = strides_of(a.dv);
  return p;
}

AttentionIds add_attention(CudnnGraph& graph, const AttentionProblem& p) {
  return p.backward ? add_backward(graph, p) : add_forward(graph, p);
}

ConvIds add_convolution(CudnnGraph& graph, const ConvProblem& p) {
  const auto image = [&](std::int64_t channels, const std::array<std::int64_t, 2>& extents,
                         const ConvProblem::Strides& strides, std::int64_t alignment) {
    return graph.tensor({.dtype = cudnn_dtype(p.dtype),
                         .shape = {p.images, p.groups * channels, extents[0], extents[1]},
                         .strides = {strides.begin(), strides.end()},
                         .kind = CudnnTensorKind::kReal,
                         .alignment = alignment});
  };
  ConvIds ids;
  ids.x = image(p.in_channels, p.in, p.x, p.alignment[0]);
  ids.weight =
      graph.tensor({.dtype = cudnn_dtype(p.dtype),
                    .shape = {p.groups * p.out_channels, p.in_channels, p.kernel[0], p.kernel[1]},
                    .strides = {},
                    .kind = CudnnTensorKind::kReal,
                    .alignment = p.alignment[1]});
  ids.y = image(p.out_channels, p.out, p.y, p.alignment[2]);
  CudnnGraph::Convolution c;
  c.compute = p.dtype == DType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  std::copy(p.padding.begin(), p.padding.end(), c.padding);
  std::copy(p.stride.begin(), p.stride.end(), c.stride);
  std::copy(p.dilation.begin(), p.dilation.end(), c.dilation);
  c.beta = p.beta;
  graph.convolution(p.kind, c, ids.x, ids.weight, ids.y);
  return ids;
}

CudnnNumerics conv_numerics(const ConvProblem& p) {
  const bool half = p.dtype == DType::kBF16 || p.dtype == DType::kF16;
  return {.tensor_cores = half || p.dtype == DType::kF64 || p.tf32, .exact_sums = !half && !p.tf32};
}

}  // namespace tessera::cuda
