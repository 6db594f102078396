#include "tessera/models/nets/token_model.h"
#include "tessera/models/nets/transformer.h"

namespace tessera::models {
namespace {

constexpr std::int64_t kBytes = 256;       // vocabulary of a byte-level tokenizer
constexpr std::int64_t kSubwords = 32000;  // of a subword tokenizer, which the larger presets use

std::vector<TransformerPreset> make_presets() {
  const auto large = [](int n_layers, std::int64_t dim, std::int64_t n_heads,
                        std::int64_t max_seq_len) {
    return ModelArgs{.n_layers = n_layers,
                     .vocab_size = kSubwords,
                     .max_seq_len = max_seq_len,
                     .dim = dim,
                     .n_heads = n_heads};
  };
  return {
      {.name = "small",
       .description = "small enough to train on a CPU",
       .options = {.n_layers = 4,
                   .vocab_size = kBytes,
                   .max_seq_len = 256,
                   .dim = 192,
                   .n_heads = 6,
                   .dropout_p = 0}},
      {.name = "tiny",
       .description = "for tests: a few thousand parameters",
       .options =
           {.n_layers = 2, .vocab_size = kBytes, .max_seq_len = 33, .dim = 20, .n_heads = 4}},
      {.name = "base",
       .description = "12 layers of 768 features, 110 million parameters",
       .options = large(12, 768, 12, 1024)},
      {.name = "large",
       .description = "24 layers of 1024 features, 336 million parameters",
       .options = large(24, 1024, 16, 1024)},
      {.name = "7b",
       .description = "32 layers of 4096 features, 6.6 billion parameters",
       .options = large(32, 4096, 32, 2048)},
  };
}

}  // namespace

const std::vector<TransformerPreset>& transformer_presets() {
  static const std::vector<TransformerPreset> presets = make_presets();
  return presets;
}

const TransformerPreset& transformer_preset(std::string_view name) {
  return preset_named("models.transformer", transformer_presets(), name);
}

}  // namespace tessera::models
