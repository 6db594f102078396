#pragma once

/// The differentiable counterparts of tensor/ops/similarity.h. Where a norm is below eps, eps is a constant; the
/// gradient of a norm of 0 is 0. All twice, but where a norm is 0.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/similarity.h"

namespace tessera {

Variable normalize(const Variable& x, const NormalizeOptions& options = {});
Variable cosine_similarity(const Variable& a, const Variable& b,
                           const CosineSimilarityOptions& options = {});
Variable pairwise_distance(const Variable& a, const Variable& b,
                           const PairwiseDistanceOptions& options = {});
Variable cdist(const Variable& a, const Variable& b, double p = 2);

}  // namespace tessera
