#include "tessera/tensor/ops/similarity.h"

#include "tessera/tensor/ops/composed/similarity.h"

namespace tessera {

Tensor normalize(const Tensor& x, const NormalizeOptions& options) {
  return composed::normalize(x, options);
}
Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityOptions& options) {
  return composed::cosine_similarity(a, b, options);
}
Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceOptions& options) {
  return composed::pairwise_distance(a, b, options);
}
Tensor cdist(const Tensor& a, const Tensor& b, double p) { return composed::cdist(a, b, p); }

}  // namespace tessera
