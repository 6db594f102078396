// Text generation: effects of the cache, of the sliding window and of the callback; errors.

#include "tessera/models/generate.h"

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/autograd/grad_mode.h"
#include "tessera/models/eval_scope.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/tiny_decoder.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;
using testing::slow_generate;
using testing::TinyDecoder;
using Tokens = std::vector<std::int32_t>;

struct Initialized {
  explicit Initialized(const testing::TinyDecoderOptions& options = {}) : model(options) {
    nn::initialize(model, {.seed = 3});
  }
  TinyDecoder model;
};

Tokens some_tokens(std::int64_t count) {
  Tokens out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<std::int32_t>((i * i + 3 * i + 1) % 7));
  return out;
}

TEST_CASE("the cache changes no token, also of texts that slide") {
  const std::int64_t max_length = GENERATE(1, 2, 5, 8, 9);
  const std::int64_t prompt_length = GENERATE(1, 4, 9, 10, 23);
  const SamplingOptions options{.max_tokens = 30, .temperature = GENERATE(0.0, 1.0), .seed = 2};
  CAPTURE(max_length, prompt_length);
  Initialized plain({.max_length = max_length});
  plain.model.eval();
  const LanguageModel model = language_model(plain.model);
  const Tokens prompt = some_tokens(prompt_length);
  const Tokens tokens = generate(model, prompt, options);
  CHECK(tokens == slow_generate(model, prompt, options));
  CHECK(tokens.size() == 30);
}

TEST_CASE("each position is computed once, until the text slides") {
  Initialized plain;
  std::vector<std::int64_t> lengths;
  plain.model.before_forward = [&](const Tensor& tokens, const DecodeCall& call) {
    CHECK(tokens.dim(0) == 1);
    CHECK_FALSE(grad_enabled());
    REQUIRE(call.cache != nullptr);
    lengths.push_back(tokens.dim(1));
  };
  // Of 9 positions, 6, 7, 8 and 9 are used; then the last 5 tokens are read again.
  generate(language_model(plain.model), some_tokens(6), {.max_tokens = 11});
  CHECK(lengths == std::vector<std::int64_t>{6, 1, 1, 1, 5, 1, 1, 1, 1, 5, 1});
  CHECK(generate(language_model(plain.model), some_tokens(6), {.max_tokens = 0}).empty());
  CHECK(lengths.size() == 11);
}

TEST_CASE("equal seeds give equal texts, and a longer one begins as a shorter one") {
  Initialized plain;
  const LanguageModel model = language_model(plain.model);
  const Tokens prompt = some_tokens(3);
  const Tokens text = generate(model, prompt, {.max_tokens = 40, .seed = 1});
  CHECK(text == generate(model, prompt, {.max_tokens = 40, .seed = 1}));
  CHECK(text != generate(model, prompt, {.max_tokens = 40, .seed = 2}));
  const Tokens shorter = generate(model, prompt, {.max_tokens = 17, .seed = 1});
  CHECK(shorter == Tokens(text.begin(), text.begin() + 17));
}

TEST_CASE("the stop token ends the text, and each token is told as it comes") {
  Initialized plain;
  const LanguageModel model = language_model(plain.model);
  const Tokens whole = generate(model, some_tokens(3), {.max_tokens = 40, .seed = 1});
  const std::int32_t stop = whole[5];
  Tokens expected;
  for (const std::int32_t token : whole) {
    if (token == stop) break;
    expected.push_back(token);
  }
  Tokens told;
  const SamplingOptions options{.max_tokens = 40, .seed = 1, .stop_token = stop};
  const Tokens text =
      generate(model, some_tokens(3), options, [&](std::int32_t token) { told.push_back(token); });
  CHECK(text == expected);
  CHECK(told == expected);
}

TEST_CASE("modes are put back, also when something throws") {
  Initialized plain;
  TinyDecoder& model = plain.model;
  const bool training = GENERATE(true, false);
  const bool stops = GENERATE(true, false);
  model.train(training);
  model.dropout().train(!training);
  bool was_evaluated = true;
  model.before_forward = [&](const Tensor&, const DecodeCall&) {
    was_evaluated &= !model.is_training() && !model.dropout().is_training();
  };
  const auto on_token = [&](std::int32_t) {
    if (stops) throw std::runtime_error("enough");
  };
  const auto run = [&] {
    generate(language_model(model), some_tokens(3), {.max_tokens = 2}, on_token);
  };
  if (stops) {
    CHECK_THROWS_WITH(run(), "enough");
  } else {
    run();
  }
  CHECK(was_evaluated);
  CHECK(model.is_training() == training);
  CHECK(model.blocks().at(1).is_training() == training);
  CHECK(model.dropout().is_training() == !training);
  CHECK(grad_enabled());
}

TEST_CASE("what cannot be generated") {
  Initialized plain;
  const LanguageModel model = language_model(plain.model);
  CHECK_THROWS_WITH(generate(model, {}, {}),
                    Contains("[models.generate] the prompt is empty; give at least one token"));
  CHECK_THROWS_WITH(
      generate(model, Tokens{1, 7}, {}),
      Contains("token 1 of the prompt is 7; the model's vocabulary has 7, from 0 on"));
  CHECK_THROWS_WITH(generate(model, Tokens{-1}, {}), Contains("token 0 of the prompt is -1"));
  CHECK_THROWS_WITH(generate(model, Tokens{1}, {.max_tokens = -1}),
                    Contains("[models.generate] max_tokens is -1"));
  CHECK_THROWS_WITH(
      generate(model, Tokens{1}, {.stop_token = 7}),
      Contains("[models.generate] stop_token is 7; the model's vocabulary has 7, from 0 on"));
  CHECK_THROWS_WITH(generate(model, Tokens{1}, {.stop_token = -1}), Contains("stop_token is -1"));
  LanguageModel without = language_model(plain.model);
  without.cached_layers = 0;
  CHECK_THROWS_WITH(generate(without, Tokens{1}, {}),
                    Contains("[models.DecodeCache] got 0 layers; at least 1 is needed"));
  TinyDecoder empty;
  CHECK_THROWS_AS(generate(language_model(empty), Tokens{1}, {}), StateError);
}

TEST_CASE("a cache counts positions and forgets them") {
  CHECK_THROWS_AS(DecodeCache(1, 0), InvalidArgument);
  Initialized plain;
  const EvalScope scope(plain.model);
  DecodeCache cache(2);
  const Tensor tokens = Tensor::from_vector<std::int64_t>({1, 2, 3}, {1, 3});
  plain.model(Variable(tokens), DecodeCall{.cache = &cache});
  CHECK(cache.length() == 3);
  cache.clear();
  CHECK(cache.length() == 0);
  CHECK_FALSE(cache.layer(1).keys().defined());
}

}  // namespace

namespace {

// Text from every language model of Tessera: the cache changes no token.

// Dropout is active in training mode, so the test fails if evaluation mode is missing. The text
// slides over 9 positions.
template <class Model>
void check_text(typename Model::Options options) {
  options.vocab_size = 11;
  options.max_seq_len = 9;
  options.dropout = 0.3;
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
  SECTION("transformer") { check_text<Transformer>({.layers = 3, .dim = 12, .heads = 3}); }
  SECTION("gpt") { check_text<Gpt>({.layers = 3, .dim = 12, .heads = 3}); }
  SECTION("llama") {
    check_text<Llama>({.layers = 3, .dim = 12, .heads = 6, .kv_heads = 3, .ffn_dim = 17});
  }
  SECTION("mixture of experts") {
    check_text<MixtureOfExperts>({.layers = 2,
                                  .dim = 12,
                                  .heads = 6,
                                  .kv_heads = 3,
                                  .ffn_dim = 7,
                                  .experts = 5,
                                  .capacity_factor = 0});
  }
}

}  // namespace
}  // namespace tessera::models
