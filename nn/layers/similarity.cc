#include "tessera/nn/layers/similarity.h"

#include "tessera/autograd/ops/ops.h"

namespace tessera::nn {

Variable CosineSimilarity::forward(const Variable& a, const Variable& b) {
  return cosine_similarity(a, b, options_);
}

Variable PairwiseDistance::forward(const Variable& a, const Variable& b) {
  return pairwise_distance(a, b, options_);
}

}  // namespace tessera::nn
