// Llama trains like an equivalent PyTorch model, with and without recomputation.
#include "tessera/models/nets/llama.h"

#include <catch2/catch.hpp>

#include "tessera/nn/recompute.h"
#include "tessera/tests/models/parity/with_adamw.h"

namespace tessera::models {
namespace {

using testing::MakeModel;
using testing::TrainingBatch;

LlamaOptions tiny_options() {
  return {.layers = 2,
          .vocab_size = 19,
          .max_seq_len = 13,
          .dim = 16,
          .heads = 4,
          .kv_heads = 2,
          .ffn_dim = 27,
          .dropout = 0};
}

MakeModel llama_of(const LlamaOptions& options, bool recomputed = false) {
  return [=] {
    const auto model = std::make_shared<Llama>(options);
    for (auto& block : model->blocks()) nn::recompute(block, recomputed);
    return testing::trained(model, [](Llama& llama, const TrainingBatch& batch) {
      return testing::mean_cross_entropy(llama(batch["tokens"]), batch.tensor("next"));
    });
  };
}

TEST_CASE("parity: Llama") {
  check_training("llama_model", "Llama, SGD", llama_of(tiny_options()));
  check_training("llama_model", "Llama, AdamW", with_adamw(llama_of(tiny_options())));
  check_training("llama_model", "Llama, SGD", llama_of(tiny_options(), true), "blocks recomputed");
}

TEST_CASE("parity: Llama, tied, one head of keys") {
  LlamaOptions options = tiny_options();
  options.kv_heads = 1;
  options.weight_tying = true;
  check_training("llama_model", "Llama, tied, one head of keys", llama_of(options));
}

}  // namespace
}  // namespace tessera::models
