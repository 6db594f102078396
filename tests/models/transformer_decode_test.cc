// The small Transformer as a language model: decoding with a cache, presets.

#include <catch2/catch.hpp>
#include <string>

#include "tessera/autograd/grad_mode.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/token_model_checks.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;
using testing::CloseResult;
using testing::count_elements;
using testing::token_input;

static_assert(IsLanguageModel<Transformer>);

TEST_CASE("transformer: decoding with a cache gives the logits of one call") {
  Transformer model({.n_layers = 3,
                     .vocab_size = 11,
                     .max_seq_len = 9,
                     .dim = 12,
                     .n_heads = 3,
                     .dropout_p = 0,
                     .checkpoint_activations = GENERATE(false, true),
                     .dtype = DType::kF64});
  testing::randomize(model);
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>(9, 1), {4, 1, 3, 1}, {0, 9}, {8, 0, 1}}) {
    const CloseResult decoded = testing::decodes_like_one_call(language_model(model), lengths);
    INFO(decoded.message);
    CHECK(decoded);
  }
}

TEST_CASE("transformer: a cache takes what it can hold, without gradients and with a mask only") {
  Transformer model({.dropout_p = 0}), unmasked({.dropout_p = 0, .use_attn_mask = false});
  nn::initialize(model);
  nn::initialize(unmasked);
  DecodeCache cache(model.cached_layers());
  const DecodeCall call{.cache = &cache};
  CHECK_THROWS_AS(model(token_input(1, 9, 8), call), StateError);
  cache.clear();
  const NoGradGuard no_grad;
  CHECK_THROWS_WITH(unmasked(token_input(1, 9, 8), call),
                    Contains("[models.Transformer] a position sees those after it"));
  model(token_input(1, 9, 8).tensor(), call);
  CHECK_THROWS_WITH(model(token_input(1, 8, 8), call),
                    Contains("got 17 positions, the model computes 16"));
  CHECK(cache.length() == 9);
  CHECK(model.cached_layers() == 2);
  CHECK_THROWS_WITH(DecodeCache(0), Contains("got 0 layers; at least 1 is needed"));
}

TEST_CASE("transformer: presets have the numbers of parameters of the formula") {
  for (const TransformerPreset& preset : transformer_presets()) {
    const ModelArgs& o = preset.options;
    INFO(preset.name);
    CHECK(count_elements(Transformer(o)) == (o.vocab_size + o.max_seq_len + 2) * o.dim +
                                                o.n_layers * (12 * o.dim * o.dim + 9 * o.dim));
  }
  CHECK(count_elements(Transformer(transformer_preset("base").options)) == 110381568);
  CHECK(count_elements(Transformer(transformer_preset("large").options)) == 336029696);
  CHECK(count_elements(Transformer(transformer_preset("7b").options)) == 6583099392);
  CHECK(count_elements(Transformer(transformer_preset("tiny").options)) < 100000);
  CHECK(transformer_presets().front().name == std::string("small"));
  CHECK_THROWS_WITH(
      transformer_preset("huge"),
      Contains("[models.transformer] unknown preset \"huge\"; there are: small, tiny, base"));
}

}  // namespace
}  // namespace tessera::models
