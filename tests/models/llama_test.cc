// LLaMA: published sizes, values against plain loops, derivatives, decoding, initial values,
// dropout, dtypes, errors.

#include "tessera/models/nets/llama.h"

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

static_assert(IsLanguageModel<Llama>);

LlamaOptions odd() {
  return {.layers = 2,
          .vocab_size = 11,
          .max_seq_len = 9,
          .dim = 12,
          .heads = 6,
          .kv_heads = 2,
          .ffn_dim = 17,
          .rotary_base = 50,
          .norm_eps = 0.01,
          .dropout = 0,
          .dtype = DType::kF64};
}

LlamaOptions smallest() {
  return {.layers = 2,
          .vocab_size = 5,
          .max_seq_len = 3,
          .dim = 4,
          .heads = 2,
          .kv_heads = 1,
          .ffn_dim = 5,
          .dropout = 0.3,
          .dtype = DType::kF64};
}

// The definition in plain loops.
Rows plain_llama(Llama& model, const LlamaOptions& options, const std::int64_t* tokens,
                 std::size_t length) {
  PlainLayers plain(model);
  Rows h = plain.embedding("token_embedding", tokens, length);
  const PlainAttention attention{.heads = static_cast<std::size_t>(options.heads),
                                 .kv_heads = static_cast<std::size_t>(options.kv_heads),
                                 .causal = true,
                                 .rotary_base = options.rotary_base};
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const Rows x = plain.rms_norm(block + "attention_norm", h, options.norm_eps);
    h = added(h, plain.attention(block + "attention", x, x, attention));
    const Rows z = plain.rms_norm(block + "ffn_norm", h, options.norm_eps);
    const Rows wide = multiplied(mapped(plain.linear(block + "feed_forward.gate", z), silu),
                                 plain.linear(block + "feed_forward.up", z));
    h = added(h, plain.linear(block + "feed_forward.down", wide));
  }
  return plain.linear("head", plain.rms_norm("norm", h, options.norm_eps));
}

TEST_CASE("llama: the named sizes have the published numbers of parameters") {
  const std::vector<std::pair<const char*, std::int64_t>> published = {
      {"llama-160m", 162417408},
      {"tinyllama-1.1b", 1100048384},
      {"llama-7b", 6738415616},
      {"llama3-8b", 8030261248}};
  for (const auto& [name, elements] : published) {
    INFO(name);
    CHECK(count_elements(Llama(llama_preset(name).options)) == elements);  // allocates nothing
  }
  CHECK(llama_presets().front().name == std::string("small"));
  CHECK(count_elements(Llama(llama_preset("tiny").options)) < 100000);
  for (const LlamaPreset& preset : llama_presets()) {
    const LlamaOptions& o = preset.options;
    const std::int64_t kv_dim = o.kv_heads * o.dim / o.heads;
    INFO(preset.name);
    CHECK(count_elements(Llama(o)) ==
          2 * o.vocab_size * o.dim + o.dim +
              o.layers * (2 * o.dim * (o.dim + kv_dim) + 3 * o.dim * o.ffn_dim + 2 * o.dim));
  }
  CHECK_THROWS_WITH(
      llama_preset("llama9"),
      Contains("[models.llama] unknown preset \"llama9\"; there are: small, tiny, llama-160m"));
}

TEST_CASE("llama: logits are those of plain loops") {
  LlamaOptions options = odd();
  options.weight_tying = GENERATE(false, true);
  Llama model(options);
  randomize(model);
  const std::int64_t length = GENERATE(1, 6, 9);
  const CloseResult result = equals_plain(
      language_model(model),
      [&](const std::int64_t* tokens, std::size_t count) {
        return plain_llama(model, options, tokens, count);
      },
      3, length);
  INFO(result.message);
  CHECK(result);
}

TEST_CASE("llama: the derivative by every parameter is right, with dropout") {
  Llama model(smallest());
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

TEST_CASE("llama: no logits depend on later tokens, and decoding gives those of one call") {
  Llama model(odd());
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

TEST_CASE("llama: parameters have these names, and a tied one stands once in the state") {
  std::vector<std::string> wanted = {"token_embedding.weight"};
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    for (const char* name :
         {"attention_norm.weight", "attention.in_proj_weight", "attention.out_proj.weight",
          "ffn_norm.weight", "feed_forward.gate.weight", "feed_forward.up.weight",
          "feed_forward.down.weight"})
      wanted.push_back(block + name);
  }
  wanted.push_back("norm.weight");
  Llama tied({.weight_tying = true});
  CHECK(parameter_names(tied) == wanted);
  nn::initialize(tied);
  CHECK(nn::state_dict(tied).size() == wanted.size());  // the state dict has no tables of angles
  wanted.push_back("head.weight");
  CHECK(parameter_names(Llama()) == wanted);
}

TEST_CASE("llama: all blocks turn by one table of angles") {
  Llama model({.layers = 3});
  CHECK(model.named_buffers().size() == 2);
}

TEST_CASE("llama: initial values are GPT-2's, of linear layers without biases") {
  Llama model({.layers = 8, .vocab_size = 96, .dim = 64});
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

TEST_CASE("llama: dropout follows the step, and is off in evaluation") {
  LlamaOptions options = odd();
  options.dropout = 0.5;
  Llama model(options), without(odd());
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
  CHECK(all_equal(model(Variable(tokens.tensor().slice(0, 2, 4))).tensor(), first.slice(0, 2, 4)));
  model.eval();
  CHECK(all_equal(model(tokens).tensor(), without(tokens).tensor()));
}

TEST_CASE("llama: logits have the dtype of the layers, a batch may have no rows, and kNull plans") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16, DType::kF32, DType::kF64);
  Llama model({.dropout = 0, .dtype = dtype});
  nn::initialize(model, {.seed = 3});
  CHECK(model(token_input(2, 5, 8)).dtype() == dtype);
  CHECK(model(token_input(0, 5, 8)).shape() == Shape{0, 5, 8});
  Llama planned({.dropout = 0, .dtype = dtype});
  nn::initialize(planned, {.device = kNull});
  const Tensor ids = Tensor::empty({2, 16}, {.dtype = DType::kI64, .device = kNull});
  CHECK(planned(Variable(ids)).shape() == Shape{2, 16, 8});
}

TEST_CASE("llama: what does not fit is refused by name") {
  CHECK_THROWS_WITH(Llama({.layers = 0}),
                    Contains("[models.Llama] layers is 0; it must be at least 1"));
  CHECK_THROWS_WITH(Llama({.vocab_size = 0}), Contains("vocab_size is 0"));
  CHECK_THROWS_WITH(Llama({.max_seq_len = 0}), Contains("max_seq_len is 0"));
  CHECK_THROWS_WITH(Llama({.dim = 0}), Contains("dim is 0"));
  CHECK_THROWS_WITH(Llama({.heads = 0}), Contains("heads is 0"));
  CHECK_THROWS_WITH(Llama({.dim = 10, .heads = 4}),
                    Contains("dim is 10, heads 4; dim must be a multiple of heads"));
  CHECK_THROWS_WITH(Llama({.kv_heads = 0}), Contains("kv_heads is 0"));
  CHECK_THROWS_WITH(Llama({.kv_heads = 3}),
                    Contains("heads is 4, kv_heads 3; kv_heads must divide heads"));
  CHECK_THROWS_WITH(Llama({.ffn_dim = 0}), Contains("ffn_dim is 0"));
  CHECK_THROWS_WITH(Llama({.dim = 12}), Contains("dim 12 over 4 heads gives a head 3 features"));
  CHECK_THROWS_AS(Llama({.rotary_base = 0}), InvalidArgument);
  CHECK_THROWS_AS(Llama({.norm_eps = -1}), InvalidArgument);
  CHECK_THROWS_AS(Llama({.dropout = 1.5}), InvalidArgument);
  Llama model;
  nn::initialize(model);
  model.eval();
  CHECK_THROWS_WITH(model(Variable(zeros({3}, {.dtype = DType::kI64}))),
                    Contains("expected tokens [batch, length], got [3]"));
  CHECK_THROWS_WITH(model(token_input(1, 17, 8)),
                    Contains("[models.Llama] got 17 positions, the model computes 16"));
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

TEST_CASE("LLaMA: a block has the bits of its formula, with sums and norms apart") {
  Llama model(odd());
  randomize(model);
  auto& block = child<LlamaBlock>(model, "blocks.1");
  const nn::AttentionForwardOptions causal{.is_causal = true};
  const auto norm = [&](const char* name, const Variable& x) {
    return child<nn::RMSNorm>(block, name)(x);
  };
  CHECK(equals_formula(
      block, {.inputs = {{2, 5, 12}},
              .call = [&](const auto& in) { return block(in[0], causal); },
              .formula =
                  [&](const auto& in) {
                    auto& attention = child<nn::MultiheadAttention>(block, "attention");
                    const Variable h =
                        in[0] + attention(norm("attention_norm", in[0]), causal).output;
                    return h + child<LlamaFeedForward>(block, "feed_forward")(norm("ffn_norm", h));
                  },
              .adding_norms = {"ffn_norm"}}));
}

}  // namespace
}  // namespace tessera::models
