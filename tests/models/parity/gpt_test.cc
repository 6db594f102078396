// GPT-2 trains like an equivalent PyTorch model, with and without recomputation.
#include "tessera/models/nets/gpt.h"

#include <catch2/catch.hpp>

#include "tessera/nn/recompute.h"
#include "tessera/tests/models/parity/with_adamw.h"

namespace tessera::models {
namespace {

using testing::MakeModel;
using testing::TrainingBatch;

GptOptions tiny_options() {
  return {.layers = 2, .vocab_size = 19, .max_seq_len = 13, .dim = 12, .heads = 3, .dropout = 0};
}

MakeModel gpt_of(const GptOptions& options, bool recomputed = false) {
  return [=] {
    const auto model = std::make_shared<Gpt>(options);
    for (auto& block : model->blocks()) nn::recompute(block, recomputed);
    return testing::trained(model, [](Gpt& gpt, const TrainingBatch& batch) {
      return testing::mean_cross_entropy(gpt(batch["tokens"]), batch.tensor("next"));
    });
  };
}

TEST_CASE("parity: Gpt") {
  check_training("gpt_model", "Gpt, SGD", gpt_of(tiny_options()));
  check_training("gpt_model", "Gpt, AdamW", with_adamw(gpt_of(tiny_options())));
  check_training("gpt_model", "Gpt, SGD", gpt_of(tiny_options(), true), "blocks recomputed");
}

TEST_CASE("parity: Gpt, untied") {
  GptOptions options = tiny_options();
  options.weight_tying = false;
  check_training("gpt_model", "Gpt, untied", gpt_of(options));
}

}  // namespace
}  // namespace tessera::models
