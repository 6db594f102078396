// The feed-forward part of a mixture of experts, slowly: token by token, expert by expert, in f64
// loops on the host.
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

// What a model of f64 with these options, whose parameters are whole, computes in training of x
// [tokens, dim].
PlainMixture plain_mixture(models::MixtureFeedForward& model,
                           const models::MixtureFeedForwardOptions& options, const Tensor& x);

}  // namespace tessera::testing
