#include "tessera/autograd/ops/similarity.h"

#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/reduce.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/similarity.h"

namespace tessera {

Variable normalize(const Variable& x, const NormalizeOptions& options) {
  return composed::normalize(x, options);
}
Variable cosine_similarity(const Variable& a, const Variable& b,
                           const CosineSimilarityOptions& options) {
  return composed::cosine_similarity(a, b, options);
}
Variable pairwise_distance(const Variable& a, const Variable& b,
                           const PairwiseDistanceOptions& options) {
  return composed::pairwise_distance(a, b, options);
}
Variable cdist(const Variable& a, const Variable& b, double p) { return composed::cdist(a, b, p); }

}  // namespace tessera
