// The mixture of experts trains like an equivalent PyTorch model, including its auxiliary losses,
// whether experts drop tokens or not.
#include "tessera/models/nets/mixture_of_experts.h"

#include <catch2/catch.hpp>

#include "tessera/nn/recompute.h"
#include "tessera/tests/models/parity/with_adamw.h"

namespace tessera::models {
namespace {

using testing::MakeModel;
using testing::TrainingBatch;

MixtureOfExpertsOptions tiny_options() {
  return {.layers = 2,
          .vocab_size = 19,
          .max_seq_len = 13,
          .dim = 16,
          .heads = 4,
          .kv_heads = 2,
          .ffn_dim = 13,
          .experts = 5,
          .top_k_experts = 2,
          .balance_loss = 0.125,
          .dropout = 0};
}

MakeModel mixture_of(const MixtureOfExpertsOptions& options, bool recomputed = false) {
  return [=] {
    const auto model = std::make_shared<MixtureOfExperts>(options);
    for (auto& block : model->blocks()) nn::recompute(block, recomputed);
    return testing::trained(model, [](MixtureOfExperts& mixture, const TrainingBatch& batch) {
      const LanguageModelResult result = mixture(batch["tokens"]);
      testing::StepResult step = testing::mean_cross_entropy(result.logits, batch.tensor("next"));
      if (result.auxiliary_loss.defined()) step.loss = step.loss + result.auxiliary_loss;
      return step;
    });
  };
}

TEST_CASE("parity: MixtureOfExperts") {
  const std::string file = "mixture_of_experts_model";
  check_training(file, "MixtureOfExperts, SGD", mixture_of(tiny_options()));
  check_training(file, "MixtureOfExperts, AdamW", with_adamw(mixture_of(tiny_options())));
  check_training(file, "MixtureOfExperts, SGD", mixture_of(tiny_options(), true),
                 "blocks recomputed");
}

TEST_CASE("parity: MixtureOfExperts that refuses tokens") {
  const std::string file = "mixture_of_experts_capacity_model";
  MixtureOfExpertsOptions options = tiny_options();
  options.capacity_factor = 1;
  options.z_loss = 0.0625;
  check_training(file, "MixtureOfExperts, capacity, z loss", mixture_of(options));
  options = tiny_options();
  options.top_k_experts = 1;
  options.expert = ExpertKind::kGelu;
  options.normalize_weights = false;
  options.capacity_factor = 1.25;
  check_training(file, "MixtureOfExperts, one expert of a token, gelu, capacity",
                 mixture_of(options));
}

}  // namespace
}  // namespace tessera::models
