#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/token_model.h"

namespace tessera::models {
namespace {

constexpr std::int64_t kBytes = 256;  // vocabulary of a byte-level tokenizer

// With the vocabulary and sequence length of Llama 1; presets of later models override them.
LlamaOptions published(std::int64_t n_layers, std::int64_t dim, std::int64_t n_heads,
                       std::int64_t n_kv_heads, std::int64_t ffn_dim, double norm_eps) {
  return {.n_layers = n_layers,
          .vocab_size = 32000,
          .max_seq_len = 2048,
          .dim = dim,
          .n_heads = n_heads,
          .n_kv_heads = n_kv_heads,
          .ffn_dim = ffn_dim,
          .norm_eps = norm_eps};
}

LlamaOptions llama3_8b() {
  LlamaOptions options = published(32, 4096, 32, 8, 14336, 1e-5);
  options.vocab_size = 128256;
  options.max_seq_len = 8192;
  options.rotary_base = 500000;
  return options;
}

std::vector<LlamaPreset> make_presets() {
  return {
      {.name = "small",
       .description = "small enough to train on a CPU",
       .options = {.n_layers = 4,
                   .vocab_size = kBytes,
                   .max_seq_len = 256,
                   .dim = 192,
                   .n_heads = 6,
                   .n_kv_heads = 2,
                   .ffn_dim = 512}},
      {.name = "tiny",
       .description = "for tests: a few thousand parameters",
       .options = {.n_layers = 2,
                   .vocab_size = kBytes,
                   .max_seq_len = 33,
                   .dim = 24,
                   .n_heads = 4,
                   .n_kv_heads = 2,
                   .ffn_dim = 62}},
      {.name = "llama-160m",
       .description = "LLaMA's architecture, 162 million parameters",
       .options = published(12, 768, 12, 12, 3072, 1e-6)},
      {.name = "tinyllama-1.1b",
       .description = "TinyLlama (Zhang et al., 2024), 1.1 billion parameters",
       .options = published(22, 2048, 32, 4, 5632, 1e-5)},
      {.name = "llama-7b",
       .description = "LLaMA (Touvron et al., 2023), 6.7 billion parameters",
       .options = published(32, 4096, 32, 32, 11008, 1e-6)},
      {.name = "llama3-8b",
       .description = "Llama 3 (Grattafiori et al., 2024), 8.0 billion parameters",
       .options = llama3_8b()},
  };
}

}  // namespace

const std::vector<LlamaPreset>& llama_presets() {
  static const std::vector<LlamaPreset> presets = make_presets();
  return presets;
}

const LlamaPreset& llama_preset(std::string_view name) {
  return preset_named("models.llama", llama_presets(), name);
}

}  // namespace tessera::models
