// Text from every language model of Tessera: the cache changes no token.

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tessera/models/generate.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/tests/models/slow_generate.h"

namespace tessera::models {
namespace {

// Dropout is active in training mode, so the test fails if evaluation mode is missing. The text
// slides over 9 positions.
template <class Model>
void check_text(typename Model::Options options) {
  options.vocab_size = 11;
  options.max_seq_len = 9;
  options.dropout_p = 0.3;
  options.dtype = DType::kF64;
  Model plain(options);
  nn::initialize(plain, {.seed = 3});
  const LanguageModel model = language_model(plain);
  const std::vector<std::int32_t> prompt = {3, 1, 4, 1};
  const SamplingOptions sampling{.max_tokens = 25, .temperature = 0.3, .seed = 2};
  const std::vector<std::int32_t> text = generate(model, prompt, sampling);
  CHECK(plain.is_training());
  plain.eval();
  CHECK(text == testing::slow_generate(model, prompt, sampling));
}

TEST_CASE("the cache changes no token of any model") {
  SECTION("transformer") { check_text<Transformer>({.n_layers = 3, .dim = 12, .n_heads = 3}); }
  SECTION("gpt") { check_text<Gpt>({.n_layers = 3, .dim = 12, .n_heads = 3}); }
  SECTION("llama") {
    check_text<Llama>({.n_layers = 3, .dim = 12, .n_heads = 6, .n_kv_heads = 3, .ffn_dim = 17});
  }
  SECTION("mixture of experts") {
    check_text<MixtureOfExperts>({.n_layers = 2,
                                  .dim = 12,
                                  .n_heads = 6,
                                  .n_kv_heads = 3,
                                  .ffn_dim = 7,
                                  .n_experts = 5,
                                  .capacity_factor = 0});
  }
}

}  // namespace
}  // namespace tessera::models
