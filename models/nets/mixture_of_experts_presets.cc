// Named sizes of the mixture of experts.

#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/token_model.h"

namespace tessera::models {

const std::vector<MixtureOfExpertsPreset>& mixture_of_experts_presets() {
  static const std::vector<MixtureOfExpertsPreset> presets = {
      {.name = "small",
       .description = "small enough to train on a CPU: 8 experts, 2 for each token",
       .options = {}},
      {.name = "tiny",
       .description = "for tests: sizes that divide badly",
       .options = {.n_layers = 2,
                   .vocab_size = 61,
                   .max_seq_len = 24,
                   .dim = 12,
                   .n_heads = 2,
                   .n_kv_heads = 1,
                   .ffn_dim = 10,
                   .n_experts = 5}},
      {.name = "small-16e",
       .description = "small with 16 experts of half the width, 4 for each token",
       .options = {.ffn_dim = 128, .n_experts = 16, .top_k = 4}},
      {.name = "mixtral-8x7b",
       .description = "Mixtral (Jiang et al., 2024), 46.7 billion parameters, 12.9 for each token",
       .options = {.n_layers = 32,
                   .vocab_size = 32000,
                   .max_seq_len = 32768,
                   .dim = 4096,
                   .n_heads = 32,
                   .n_kv_heads = 8,
                   .ffn_dim = 14336,
                   .balance_loss_weight = 0.02,
                   .rotary_base = 1e6}},
  };
  return presets;
}

const MixtureOfExpertsPreset& mixture_of_experts_preset(std::string_view name) {
  return preset_named("models.mixture_of_experts", mixture_of_experts_presets(), name);
}

}  // namespace tessera::models
