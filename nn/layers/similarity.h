#pragma once

/// cosine_similarity and pairwise_distance of tensor/ops/similarity.h as layers, called with two inputs.

#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/similarity.h"

namespace tessera::nn {

class CosineSimilarity final : public Layer<CosineSimilarity> {
 public:
  using Options = CosineSimilarityOptions;
  explicit CosineSimilarity(const CosineSimilarityOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& a, const Variable& b);

 private:
  CosineSimilarityOptions options_;
};

class PairwiseDistance final : public Layer<PairwiseDistance> {
 public:
  using Options = PairwiseDistanceOptions;
  explicit PairwiseDistance(const PairwiseDistanceOptions& options = {}) : options_(options) {}
  Variable forward(const Variable& a, const Variable& b);

 private:
  PairwiseDistanceOptions options_;
};

}  // namespace tessera::nn
