#pragma once

/// Vectors made unit vectors, and compared: lengths, angles and distances, over one dim.
///
/// Operands are floating, of any strides; 16-bit dtypes are computed in f32 and rounded once. Two operands broadcast
/// against each other and promote. All functions throw InvalidArgument for other dtypes, operands on two devices,
/// shapes that do not broadcast, and a dim that does not exist.

#include "tessera/tensor/tensor.h"

namespace tessera {

struct NormalizeOptions {
  double p = 2;  ///< of norm() in ops/reduce.h
  int dim = 1;
  double eps = 1e-12;  ///< smallest norm divided by
};
/// x / max(norm(x) over dim, eps).
Tensor normalize(const Tensor& x, const NormalizeOptions& options = {});

struct CosineSimilarityOptions {
  int dim = 1;
  double eps = 1e-8;  ///< smallest norm divided by
};
/// The cosine of the angle between a and b, over `dim`, which the result lacks: sum(a / max(|a|, eps) * b / max(|b|,
/// eps)). `dim` is one of the common shape.
Tensor cosine_similarity(const Tensor& a, const Tensor& b,
                         const CosineSimilarityOptions& options = {});

struct PairwiseDistanceOptions {
  double p = 2;
  double eps = 1e-6;      ///< added to each difference
  bool keep_dim = false;  ///< the last dim stays, with extent 1
};
/// The p-norm of a - b + eps over the last dim.
Tensor pairwise_distance(const Tensor& a, const Tensor& b,
                         const PairwiseDistanceOptions& options = {});

/// The p-norm of the difference of each row of a with each row of b: a [..., m, features], b [..., n, features] ->
/// [..., m, n]. p >= 0, also infinity: see norm(). Differences are taken before they are squared, so that near points keep
/// their distance; they need m n features elements of memory.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);

}  // namespace tessera
