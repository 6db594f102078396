#pragma once

/// The definitions of ops/similarity.h. For the .cc files that instantiate them.

#include <algorithm>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/similarity.h"

namespace tessera::composed {

// x along `dim`, of length 1 but where it is shorter than eps.
template <class V>
V unit(const V& x, int dim, double p, double eps) {
  return div(x, maximum(norm(x, {dim}, {.p = p, .keep_dims = true}), eps));
}

template <class V>
V normalize(const V& x, const NormalizeOptions& options) {
  constexpr const char* kWhere = "normalize";
  const int dim = ops::along_dim(kWhere, floating(kWhere, x), options.dim);
  return rounded_once(x, [&](const V& v) { return unit(v, dim, options.p, options.eps); });
}

// The dtype that two operands promote to; the result has it. Checks them.
template <class V>
DType common_dtype(const char* where, const V& a, const V& b) {
  const Tensor& first = floating(where, a);
  const Tensor& second = floating(where, b);
  ops::check_same_device(where, first, second);
  return promote(first.dtype(), second.dtype());
}

template <class V>
V cosine_similarity(const V& a, const V& b, const CosineSimilarityOptions& options) {
  constexpr const char* kWhere = "cosine_similarity";
  const DType dtype = common_dtype(kWhere, a, b), wide = compute_dtype(dtype);
  const Shape common = broadcast_shapes(a.shape(), b.shape(), kWhere);
  const int dim = normalize_dim(options.dim, std::max(common.ndim(), 1), kWhere);
  const V first = unit(expanded(in_dtype(a, wide), common), dim, 2, options.eps);
  const V second = unit(expanded(in_dtype(b, wide), common), dim, 2, options.eps);
  return in_dtype(sum(mul(first, second), {dim}), dtype);
}

template <class V>
V pairwise_distance(const V& a, const V& b, const PairwiseDistanceOptions& options) {
  constexpr const char* kWhere = "pairwise_distance";
  const DType dtype = common_dtype(kWhere, a, b), wide = compute_dtype(dtype);
  broadcast_shapes(a.shape(), b.shape(), kWhere);  // checks
  const V difference = add(sub(in_dtype(a, wide), in_dtype(b, wide)), options.eps);
  return in_dtype(norm(difference, {-1}, {.p = options.p, .keep_dims = options.keep_dim}), dtype);
}

template <class V>
V cdist(const V& a, const V& b, double p) {
  constexpr const char* kWhere = "cdist";
  const DType dtype = common_dtype(kWhere, a, b), wide = compute_dtype(dtype);
  const int ndim = std::max(a.ndim(), b.ndim());
  TESSERA_CHECK(a.ndim() >= 2 && b.ndim() >= 2 && ndim < kMaxDims, kWhere,
                "needs rows [..., rows, features] of 2 to {} dims, got {} and {}", kMaxDims - 1,
                a.shape().str(), b.shape().str());
  TESSERA_CHECK(a.dim(-1) == b.dim(-1), kWhere, "{} has {} features, {} has {}; they must be equal",
                a.shape().str(), a.dim(-1), b.shape().str(), b.dim(-1));
  TESSERA_CHECK(p >= 0, kWhere, "p is {}; it must be at least 0", p);
  const auto batch = [](const V& x) {
    return x.shape().without(x.ndim() - 1).without(x.ndim() - 2);
  };
  broadcast_shapes(batch(a), batch(b), kWhere);
  const V differences = sub(in_dtype(a, wide).unsqueeze(-2), in_dtype(b, wide).unsqueeze(-3));
  // No features: 0, also for the largest of them.
  const V distances = a.dim(-1) == 0 ? sum(differences, {-1}) : norm(differences, {-1}, {.p = p});
  return in_dtype(distances, dtype);
}

}  // namespace tessera::composed
