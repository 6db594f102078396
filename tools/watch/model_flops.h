#pragma once

/// Operations that training needs, from the sizes of a model.

#include <cstdint>

namespace tessera::tools {

struct ModelFlopsArgs {
  /// Elements of the weights that a token is multiplied with: no embedding table that is looked up
  /// in, and of experts those that one token visits. A tied output matrix counts.
  std::int64_t matmul_parameters = 0;
  std::int64_t layers = 0;  ///< with self-attention
  std::int64_t dim = 0;     ///< of all heads of a layer together
  std::int64_t length = 0;  ///< tokens that attend to each other
  bool causal = true;       ///< half of the pairs are left out
};

/// Operations per token of one training step, forward and backward: 6 for each weight, and
/// 12 layers dim length for attention's two products, half of it under a causal mask. What is
/// computed twice (recompute) counts once. Formula: Chowdhery et al., PaLM, appendix B; there
/// without the half.
double training_flops_per_token(const ModelFlopsArgs& args);

}  // namespace tessera::tools
