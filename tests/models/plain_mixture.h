// A slow reference of the feed-forward part of a mixture of experts: token by token, expert by
// expert, in f64 loops on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/models/nets/expert_layers.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing {

struct PlainMixture {
  std::vector<std::vector<double>> output;       // [tokens][dim]
  std::vector<std::vector<std::int64_t>> taken;  // by expert: its tokens, in ascending order
  double balance = 0;                            // experts * sum_i f_i P_i
  double z = 0;                                  // mean of logsumexp(logits)^2
};

// The training result of an f64 model with these options and full parameters, for x [tokens, dim].
PlainMixture plain_mixture(models::MixtureFeedForward& model,
                           const models::MixtureFeedForwardOptions& options, const Tensor& x);

}  // namespace tessera::testing
