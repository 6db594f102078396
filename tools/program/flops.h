#pragma once

/// Operations per second: what a model needs, and what this machine can do.

#include <cstdint>

#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"

namespace tessera::tools {

/// The number of operations of training, from the sizes of a model.
struct ModelFlopsArgs {
  /// Elements of the weights that a token is multiplied with: without embedding tables used for
  /// lookup, and only the experts that one token is sent to. A tied output matrix counts.
  std::int64_t matmul_parameters = 0;
  std::int64_t layers = 0;  ///< with self-attention
  std::int64_t dim = 0;     ///< of all heads of a layer together
  std::int64_t length = 0;  ///< tokens that attend to each other
  bool causal = true;       ///< half of the pairs are not computed
};

/// Operations per token of one training step, forward and backward: 6 for each weight, and 12
/// layers dim length for attention's two products, half of that with a causal mask. Recomputation
/// does not count. Formula: Chowdhery et al., PaLM, appendix B, which does not halve.
double training_flops_per_token(const ModelFlopsArgs& args);

// The measured speed of this machine's matrix products, as the reference for "share of peak".

/// Operations per second (a multiplication and an addition are two) of the fastest of several large
/// square products in `dtype`: on the CPU with the calling thread and the threads of its
/// RankContext, on a GPU on its current stream. Takes part of a second. Ranks on one machine must
/// call it at the same time; their sum is then the machine's peak. Throws InvalidArgument for a
/// dtype that is not floating.
double measure_peak_flops(DType dtype, Device device = kCpu);

}  // namespace tessera::tools
