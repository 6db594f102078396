// GPT-2: published sizes, values against plain loops, derivatives, decoding, initial values,
// dropout, dtypes, errors.

#include "tessera/models/nets/gpt.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/token_model_checks.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::models {
namespace {

using namespace testing;
using Catch::Matchers::Contains;

static_assert(IsLanguageModel<Gpt>);

GptOptions odd() {
  return {.layers = 2,
          .vocab_size = 11,
          .max_seq_len = 9,
          .dim = 12,
          .heads = 3,
          .dropout = 0,
          .dtype = DType::kF64};
}

GptOptions smallest() {
  return {.layers = 2,
          .vocab_size = 5,
          .max_seq_len = 3,
          .dim = 4,
          .heads = 2,
          .dropout = 0.3,
          .dtype = DType::kF64};
}

// The definition in plain loops.
Rows plain_gpt(Gpt& model, const GptOptions& options, const std::int64_t* tokens,
               std::size_t length) {
  PlainLayers plain(model);
  std::vector<std::int64_t> positions;
  for (std::size_t t = 0; t < length; ++t) positions.push_back(static_cast<std::int64_t>(t));
  Rows h = added(plain.embedding("token_embedding", tokens, length),
                 plain.embedding("position_embedding", positions.data(), length));
  const auto heads = static_cast<std::size_t>(options.heads);
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const Rows x = plain.layer_norm(block + "attention_norm", h);
    h = added(h, plain.attention(block + "attention", x, x,
                                 {.heads = heads, .kv_heads = heads, .causal = true}));
    const Rows wide =
        plain.linear(block + "feed_forward.up", plain.layer_norm(block + "ffn_norm", h));
    h = added(h, plain.linear(block + "feed_forward.down", mapped(wide, gelu_tanh)));
  }
  return plain.linear("head", plain.layer_norm("norm", h));
}

TEST_CASE("gpt: the named sizes have the published numbers of parameters") {
  const std::vector<std::pair<const char*, std::int64_t>> published = {{"gpt2", 124439808},
                                                                       {"gpt2-medium", 354823168},
                                                                       {"gpt2-large", 774030080},
                                                                       {"gpt2-xl", 1557611200},
                                                                       {"gpt3-6.7b", 6658404352}};
  for (const auto& [name, elements] : published) {
    INFO(name);
    CHECK(count_elements(Gpt(gpt_preset(name).options)) == elements);  // allocates nothing
  }
  CHECK(gpt_presets().front().name == std::string("small"));
  CHECK(count_elements(Gpt(gpt_preset("tiny").options)) < 100000);
  for (const GptPreset& preset : gpt_presets()) {
    const GptOptions& o = preset.options;
    INFO(preset.name);
    CHECK(o.dropout == 0);  // cuDNN's attention has none, CUDA graphs neither
    CHECK(count_elements(Gpt(o)) == (o.vocab_size + o.max_seq_len + 2) * o.dim +
                                        o.layers * (12 * o.dim * o.dim + 13 * o.dim));
  }
  CHECK_THROWS_WITH(gpt_preset("gpt5"),
                    Contains("[models.gpt] unknown preset \"gpt5\"; there are: small, tiny, gpt2"));
}

TEST_CASE("gpt: logits are those of plain loops") {
  GptOptions options = odd();
  options.weight_tying = GENERATE(false, true);
  Gpt model(options);
  randomize(model);
  const std::int64_t length = GENERATE(1, 6, 9);
  const CloseResult result = equals_plain(
      language_model(model),
      [&](const std::int64_t* tokens, std::size_t count) {
        return plain_gpt(model, options, tokens, count);
      },
      3, length);
  INFO(result.message);
  CHECK(result);
}

TEST_CASE("gpt: the derivative by every parameter is right, with dropout") {
  Gpt model(smallest());
  randomize(model);
  const Variable tokens = token_input(2, 3, 5);
  const Tensor targets = Tensor::from_vector(some_tokens(6, 5), {6});
  const GradCheckResult result = parameter_grad_check(model, [&] {
    const random::StepScope step({.seed = 1, .step = 7});
    return cross_entropy(flatten(model(tokens), 0, 1), targets);
  });
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("gpt: no logits depend on later tokens, and decoding gives those of one call") {
  Gpt model(odd());
  randomize(model);
  const CloseResult causal = is_causal(language_model(model));
  INFO(causal.message);
  CHECK(causal);
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>(9, 1), {4, 1, 3, 1}, {0, 9}, {8, 0, 1}}) {
    const CloseResult decoded = decodes_like_one_call(language_model(model), lengths);
    INFO(decoded.message);
    CHECK(decoded);
  }
}

TEST_CASE("gpt: parameters have these names, and a tied one stands once in the state") {
  std::vector<std::string> wanted = {"token_embedding.weight", "position_embedding.weight"};
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    for (const char* name :
         {"attention_norm.weight", "attention_norm.bias", "attention.in_proj_weight",
          "attention.in_proj_bias", "attention.out_proj.weight", "attention.out_proj.bias",
          "ffn_norm.weight", "ffn_norm.bias", "feed_forward.up.weight", "feed_forward.up.bias",
          "feed_forward.down.weight", "feed_forward.down.bias"})
      wanted.push_back(block + name);
  }
  wanted.insert(wanted.end(), {"norm.weight", "norm.bias"});
  Gpt tied;
  CHECK(parameter_names(tied) == wanted);
  nn::initialize(tied);
  CHECK(nn::state_dict(tied).size() == wanted.size());
  wanted.push_back("head.weight");
  CHECK(parameter_names(Gpt({.weight_tying = false})) == wanted);
}

TEST_CASE("gpt: initial values are GPT-2's") {
  Gpt model({.layers = 8, .vocab_size = 96, .max_seq_len = 64, .dim = 64, .weight_tying = false});
  nn::initialize(model, {.seed = 3});
  for (const std::string& name : parameter_names(model)) {
    INFO(name);
    const Statistics found = statistics_of(model, name);
    const bool is_residual = name.ends_with("out_proj.weight") || name.ends_with("down.weight");
    if (name.find("norm") != std::string::npos || name.ends_with("bias")) {
      CHECK(found.mean == (name.ends_with("norm.weight") ? 1 : 0));
      CHECK(found.deviation == 0);
    } else {
      CHECK(std::abs(found.mean) < 0.002);
      CHECK(found.deviation == Approx(is_residual ? 0.005 : 0.02).epsilon(0.05));
    }
  }
}

TEST_CASE("gpt: dropout follows the step, and is off in evaluation") {
  GptOptions options = odd();
  options.dropout = 0.5;
  Gpt model(options), without(odd());
  randomize(model);
  nn::copy_state(model, without);
  const Variable tokens = token_input(4, 8, 11);
  const auto at_step = [&](std::uint64_t number) {
    const random::StepScope step({.seed = 1, .step = number});
    return model(tokens).tensor();
  };
  const Tensor first = at_step(0);
  CHECK(all_equal(first, at_step(0)));
  CHECK_FALSE(all_equal(first, at_step(1)));
  const random::StepScope second_half({.seed = 1, .step = 0, .first_sample = 2});
  // On a GPU the bits of a product depend on its number of rows.
  CHECK(all_close(model(Variable(tokens.tensor().slice(0, 2, 4))).tensor(), first.slice(0, 2, 4),
                  default_device().is_cuda() ? Tolerance{.rtol = 1e-10, .atol = 1e-10}
                                             : Tolerance{.rtol = 0, .atol = 0}));
  model.eval();
  CHECK(all_equal(model(tokens).tensor(), without(tokens).tensor()));
}

TEST_CASE("gpt: logits have the dtype of the layers, a batch may have no rows, and kNull plans") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16, DType::kF32, DType::kF64);
  Gpt model({.dropout = 0, .dtype = dtype});
  nn::initialize(model, {.seed = 3});
  CHECK(model(token_input(2, 5, 8)).dtype() == dtype);
  CHECK(model(token_input(0, 5, 8)).shape() == Shape{0, 5, 8});
  Gpt planned({.dropout = 0, .dtype = dtype});
  nn::initialize(planned, {.device = kNull});
  const Tensor ids = Tensor::empty({2, 16}, {.dtype = DType::kI64, .device = kNull});
  CHECK(planned(Variable(ids)).shape() == Shape{2, 16, 8});
}

TEST_CASE("gpt: on a GPU the rows of logits begin at multiples of 16 bytes") {
  Gpt model({.vocab_size = 11, .dropout = 0, .dtype = DType::kBF16});
  nn::initialize(model, {.seed = 3});
  const Tensor logits = model(token_input(2, 5, 11)).tensor();
  CHECK(logits.shape() == Shape{2, 5, 11});
  const std::int64_t pitch = default_device().is_cpu() ? 11 : 16;
  CHECK(logits.strides() == Shape{5 * pitch, pitch, 1});
}

TEST_CASE("gpt: what does not fit is refused by name") {
  CHECK_THROWS_WITH(Gpt({.layers = 0}),
                    Contains("[models.Gpt] layers is 0; it must be at least 1"));
  CHECK_THROWS_WITH(Gpt({.vocab_size = 0}), Contains("vocab_size is 0"));
  CHECK_THROWS_WITH(Gpt({.max_seq_len = 0}), Contains("max_seq_len is 0"));
  CHECK_THROWS_WITH(Gpt({.dim = 0}), Contains("dim is 0"));
  CHECK_THROWS_WITH(Gpt({.heads = 0}), Contains("heads is 0"));
  CHECK_THROWS_WITH(Gpt({.dim = 10, .heads = 4}),
                    Contains("dim is 10, heads 4; dim must be a multiple of heads"));
  CHECK_THROWS_AS(Gpt({.dropout = 1.5}), InvalidArgument);
  Gpt model;
  nn::initialize(model);
  model.eval();
  CHECK_THROWS_WITH(model(Variable(zeros({3}, {.dtype = DType::kI64}))),
                    Contains("expected tokens [batch, length], got [3]"));
  CHECK_THROWS_WITH(model(token_input(1, 17, 8)),
                    Contains("[models.Gpt] got 17 positions, the model computes 16"));
  const Variable unknown(full({1, 2}, 8, {.dtype = DType::kI64}));
  CHECK_THROWS_AS(model(unknown).tensor().to_vector<float>(), InvalidArgument);
  DecodeCache cache(model.cached_layers());
  CHECK_THROWS_AS(model(token_input(1, 9, 8), DecodeCall{.cache = &cache}), StateError);
  cache.clear();
  const NoGradGuard no_grad;
  model(token_input(1, 9, 8), DecodeCall{.cache = &cache});
  CHECK_THROWS_WITH(model(token_input(1, 8, 8), DecodeCall{.cache = &cache}),
                    Contains("got 17 positions"));
  CHECK(cache.length() == 9);
}

TEST_CASE("GPT-2: a block has the bits of its formula, with sums and norms apart") {
  Gpt model(odd());
  randomize(model);
  auto& block = child<PreNormBlock>(model, "blocks.1");
  const nn::AttentionForwardOptions causal{.is_causal = true};
  const auto norm = [&](const char* name, const Variable& x) {
    return child<nn::LayerNorm>(block, name)(x);
  };
  CHECK(equals_formula(
      block, {.inputs = {{2, 5, 12}},
              .call = [&](const auto& in) { return block(in[0], causal); },
              .formula =
                  [&](const auto& in) {
                    auto& attention = child<nn::MultiheadAttention>(block, "attention");
                    const Variable h =
                        in[0] + attention(norm("attention_norm", in[0]), causal).output;
                    return h + child<GeluFeedForward>(block, "feed_forward")(norm("ffn_norm", h));
                  },
              .adding_norms = {"ffn_norm"}}));
}

}  // namespace
}  // namespace tessera::models
