// The encoder-decoder from tokens to logits: sizes, values against plain loops with padded sources,
// derivatives, cached decoding, ties, initial values. Errors: encoder_decoder_errors_test.cc.

#include "tessera/models/nets/encoder_decoder.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/token_model_checks.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::models {
namespace {

using namespace testing;
using Catch::Matchers::Contains;

constexpr std::int64_t kVocab = 11;

EncoderDecoderOptions odd() {
  return {.encoder_layers = 1,
          .decoder_layers = 2,
          .vocab_size = kVocab,
          .max_seq_len = 7,
          .dim = 12,
          .heads = 3,
          .ffn_dim = 17,
          .dropout = 0,
          .dtype = DType::kF64};
}

// true marks padding, at the end of each sample of `lengths`.
Tensor padding_after(const std::vector<std::int64_t>& lengths, std::int64_t length) {
  const auto batch = static_cast<std::int64_t>(lengths.size());
  const Tensor padding = zeros({batch, length}, {.dtype = DType::kBool});
  for (std::int64_t i = 0; i < batch; ++i)
    fill_(padding.select(0, i).slice(0, lengths[static_cast<std::size_t>(i)], length), 1);
  return padding;
}

// sqrt(dim) embedding + positions, by the formula of the paper or from the model's table.
Rows plain_embedding(EncoderDecoder& model, const EncoderDecoderOptions& options,
                     const std::string& side, const std::vector<std::int64_t>& tokens) {
  PlainLayers plain(model);
  Rows h = plain.embedding(side + "_embedding", tokens.data(), tokens.size());
  const auto dim = static_cast<std::size_t>(options.dim);
  const bool is_learned = options.positions == PositionKind::kLearned;
  const Row table = is_learned ? plain.values(side + "_positions.learned.weight") : Row();
  for (std::size_t t = 0; t < h.size(); ++t) {
    for (std::size_t i = 0; i < dim; ++i) {
      const double angle = static_cast<double>(t) * std::pow(1e4, -static_cast<double>(i / 2 * 2) /
                                                                      static_cast<double>(dim));
      const double sine = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
      h[t][i] =
          h[t][i] * std::sqrt(static_cast<double>(dim)) + (is_learned ? table[t * dim + i] : sine);
    }
  }
  return h;
}

Rows plain_feed_forward(PlainLayers& plain, const std::string& block, const Rows& h) {
  const Rows wide =
      plain.linear(block + "feed_forward.up", plain.layer_norm(block + "ffn_norm", h));
  return added(h, plain.linear(block + "feed_forward.down", mapped(wide, gelu_tanh)));
}

// One sample; its source ends at the first padding.
Rows plain_logits(EncoderDecoder& model, const EncoderDecoderOptions& options,
                  const std::vector<std::int64_t>& source, const std::vector<bool>& padding,
                  const std::vector<std::int64_t>& target) {
  PlainLayers plain(model);
  const auto heads = static_cast<std::size_t>(options.heads);
  const PlainAttention to_source{.heads = heads, .kv_heads = heads, .hidden = padding};
  const PlainAttention to_target{.heads = heads, .kv_heads = heads, .causal = true};
  Rows memory = plain_embedding(model, options, "source", source);
  for (std::int64_t i = 0; i < options.encoder_layers; ++i) {
    const std::string block = "encoder." + std::to_string(i) + ".";
    const Rows x = plain.layer_norm(block + "attention_norm", memory);
    memory = added(memory, plain.attention(block + "attention", x, x, to_source));
    memory = plain_feed_forward(plain, block, memory);
  }
  memory = plain.layer_norm("encoder_norm", memory);
  Rows h = plain_embedding(model, options, "target", target);
  for (std::int64_t i = 0; i < options.decoder_layers; ++i) {
    const std::string block = "decoder." + std::to_string(i) + ".";
    const Rows x = plain.layer_norm(block + "attention_norm", h);
    h = added(h, plain.attention(block + "attention", x, x, to_target));
    const Rows y = plain.layer_norm(block + "cross_attention_norm", h);
    h = added(h, plain.attention(block + "cross_attention", y, memory, to_source));
    h = plain_feed_forward(plain, block, h);
  }
  return plain.linear("head", plain.layer_norm("decoder_norm", h));
}

std::vector<std::int64_t> row_of(const Variable& tokens, std::int64_t sample) {
  return tokens.tensor().select(0, sample).to_vector<std::int64_t>();
}

TEST_CASE("encoder-decoder: the presets have the numbers of parameters of the formula") {
  for (const EncoderDecoderPreset& preset : encoder_decoder_presets()) {
    const EncoderDecoderOptions& o = preset.options;
    INFO(preset.name);
    const std::int64_t attention = 4 * o.dim * o.dim + 4 * o.dim, norm = 2 * o.dim;
    const std::int64_t feed_forward = 2 * o.dim * o.ffn_dim + o.ffn_dim + o.dim;
    CHECK(count_elements(EncoderDecoder(o)) ==
          o.vocab_size * o.dim + o.encoder_layers * (attention + feed_forward + 2 * norm) +
              o.decoder_layers * (2 * attention + feed_forward + 3 * norm) + 2 * norm);
  }
  // Table 3 of the paper says 65 and 213 million.
  CHECK(count_elements(EncoderDecoder(encoder_decoder_preset("base").options)) == 63084544);
  CHECK(count_elements(EncoderDecoder(encoder_decoder_preset("big").options)) == 214249472);
  CHECK(count_elements(EncoderDecoder(encoder_decoder_preset("tiny").options)) < 100000);
  CHECK(encoder_decoder_presets().front().name == std::string("small"));
  CHECK_THROWS_WITH(
      encoder_decoder_preset("huge"),
      Contains("[models.encoder_decoder] unknown preset \"huge\"; there are: small, tiny, base"));
}

TEST_CASE("encoder-decoder: logits are those of plain loops, with padded sources") {
  EncoderDecoderOptions options = odd();
  options.positions = GENERATE(PositionKind::kSinusoidal, PositionKind::kLearned);
  options.share_embeddings = GENERATE(false, true);
  options.weight_tying = GENERATE(false, true);
  EncoderDecoder model(options);
  randomize(model);
  const Variable source = token_input(3, 5, kVocab), target = token_input(3, 7, kVocab);
  const Tensor padding = padding_after({5, 2, 4}, 5);
  const Tensor logits =
      model(source, target, EncoderDecoderCall{.source_padding = padding}).tensor();
  REQUIRE(logits.shape() == Shape{3, 7, kVocab});
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    std::vector<bool> hidden;
    for (std::int64_t t = 0; t < 5; ++t)
      hidden.push_back(padding.select(0, sample).select(0, t).item<bool>());
    std::vector<double> expected;
    for (const Row& row :
         plain_logits(model, options, row_of(source, sample), hidden, row_of(target, sample)))
      expected.insert(expected.end(), row.begin(), row.end());
    const CloseResult result =
        all_close(logits.select(0, sample), Tensor::from_vector(expected, {7, kVocab}),
                  {.rtol = 1e-12, .atol = 1e-12});
    INFO(result.message);
    CHECK(result);
  }
}

TEST_CASE("encoder-decoder: the derivative by every parameter is right, with dropout") {
  EncoderDecoderOptions options{.encoder_layers = 1,
                                .decoder_layers = 1,
                                .vocab_size = 5,
                                .max_seq_len = 4,
                                .dim = 4,
                                .heads = 2,
                                .ffn_dim = 5,
                                .dropout = 0.3,
                                .dtype = DType::kF64};
  options.positions = GENERATE(PositionKind::kSinusoidal, PositionKind::kLearned);
  options.share_embeddings = options.positions == PositionKind::kSinusoidal;
  EncoderDecoder model(options);
  randomize(model);
  const Variable source = token_input(2, 4, 5), target = token_input(2, 3, 5);
  const EncoderDecoderCall call{.source_padding = padding_after({4, 2}, 4)};
  const Tensor targets = Tensor::from_vector(some_tokens(6, 5), {6});
  const GradCheckResult result = parameter_grad_check(model, [&] {
    const random::StepScope step({.seed = 1, .step = 7});
    return cross_entropy(flatten(model(source, target, call), 0, 1), targets);
  });
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("encoder-decoder: targets are causal, sources are not, padding is not seen") {
  EncoderDecoder model(odd());
  randomize(model);
  const Variable source = token_input(1, 5, kVocab), target = token_input(1, 6, kVocab);
  const EncoderDecoderCall call{.source_padding = padding_after({3}, 5)};
  const Tensor before = model(source, target, call).tensor();
  fill_(source.tensor().slice(1, 3, 5), 10);
  CHECK(all_equal(model(source, target, call).tensor(), before));
  fill_(target.tensor().select(1, 4), 10);
  const Tensor after = model(source, target, call).tensor();
  CHECK(all_equal(after.slice(1, 0, 4), before.slice(1, 0, 4)));
  CHECK_FALSE(all_equal(after.slice(1, 4, 6), before.slice(1, 4, 6)));
  fill_(source.tensor().select(1, 2), 10);
  CHECK_FALSE(
      all_equal(model(source, target, call).tensor().slice(1, 0, 1), before.slice(1, 0, 1)));
}

TEST_CASE("encoder-decoder: decoding with a cache gives the logits of one call") {
  EncoderDecoderOptions options = odd();
  options.positions = GENERATE(PositionKind::kSinusoidal, PositionKind::kLearned);
  EncoderDecoder model(options);
  randomize(model);
  const NoGradGuard no_grad;
  const Variable source = token_input(3, 5, kVocab), target = token_input(3, 7, kVocab);
  const Tensor padding = padding_after({5, 2, 4}, 5);
  const Tensor expected =
      model(source, target, EncoderDecoderCall{.source_padding = padding}).tensor();
  EncoderDecoderCache cache(model.cached_layers(), 1);
  for (int round = 0; round < 2; ++round) {
    std::int64_t begin = 0;
    for (const std::int64_t length : {1, 3, 1, 2}) {
      EncoderDecoderCall call{.cache = &cache};
      if (begin == 0) call.source_padding = padding;
      const Variable part(target.tensor().slice(1, begin, begin + length));
      const Tensor logits = model(begin == 0 ? source : Variable(), part, call).tensor();
      const CloseResult result = all_close(logits, expected.slice(1, begin, begin + length),
                                           {.rtol = 1e-12, .atol = 1e-12});
      INFO("round " << round << " from " << begin << ": " << result.message);
      CHECK(result);
      begin += length;
      CHECK(cache.length() == begin);
    }
    cache.clear();
  }
}

TEST_CASE("encoder-decoder: embeddings and head are tied as asked for") {
  const auto is_tied = [](EncoderDecoder& model, const char* a, const char* b) {
    return model.get_parameter(a).same_as(model.get_parameter(b));
  };
  for (const bool share : {false, true}) {
    for (const bool tie : {false, true}) {
      EncoderDecoder model({.share_embeddings = share, .weight_tying = tie});
      CHECK(is_tied(model, "source_embedding.weight", "target_embedding.weight") == share);
      CHECK(is_tied(model, "target_embedding.weight", "head.weight") == tie);
      nn::initialize(model);
      CHECK(nn::state_dict(model).contains("head.weight") == !tie);
      CHECK(nn::state_dict(model).contains("target_embedding.weight") == !share);
    }
  }
}

TEST_CASE("encoder-decoder: parameters have these names") {
  const std::vector<std::string> encoder = {"attention_norm.weight",     "attention_norm.bias",
                                            "attention.in_proj_weight",  "attention.in_proj_bias",
                                            "attention.out_proj.weight", "attention.out_proj.bias",
                                            "ffn_norm.weight",           "ffn_norm.bias",
                                            "feed_forward.up.weight",    "feed_forward.up.bias",
                                            "feed_forward.down.weight",  "feed_forward.down.bias"};
  std::vector<std::string> wanted = {"source_embedding.weight"};
  for (const std::string& name : encoder) wanted.push_back("encoder.0." + name);
  wanted.insert(wanted.end(), {"encoder_norm.weight", "encoder_norm.bias"});
  for (const std::string block : {"decoder.0.", "decoder.1."}) {
    for (std::size_t i = 0; i < encoder.size(); ++i) {
      if (i == 6) {
        for (std::size_t j = 0; j < 6; ++j) wanted.push_back(block + "cross_" + encoder[j]);
      }
      wanted.push_back(block + encoder[i]);
    }
  }
  wanted.insert(wanted.end(), {"decoder_norm.weight", "decoder_norm.bias"});
  CHECK(parameter_names(EncoderDecoder(odd())) == wanted);
}

TEST_CASE("encoder-decoder: initial values") {
  EncoderDecoder model({.vocab_size = 96,
                        .max_seq_len = 64,
                        .dim = 64,
                        .ffn_dim = 128,
                        .positions = PositionKind::kLearned,
                        .share_embeddings = false,
                        .weight_tying = false});
  nn::initialize(model, {.seed = 3});
  for (const std::string& name : parameter_names(model)) {
    INFO(name);
    const Statistics found = statistics_of(model, name);
    const Shape shape = model.get_parameter(name).shape();
    if (shape.ndim() == 1) {
      CHECK(found.mean == (name.ends_with("norm.weight") ? 1 : 0));
      CHECK(found.deviation == 0);
      continue;
    }
    const bool is_table =
        name.starts_with("source") || name.starts_with("target") || name.starts_with("head");
    const auto fans = static_cast<double>(shape[0] + shape[1]);
    CHECK(std::abs(found.mean) < 0.01);
    CHECK(found.deviation == Approx(is_table ? 1.0 / 8 : std::sqrt(2 / fans)).epsilon(0.05));
  }
}

TEST_CASE("encoder-decoder: dropout is off in evaluation, logits have the dtype of the layers") {
  EncoderDecoderOptions options = odd();
  options.dropout = 0.5;
  EncoderDecoder model(options), without(odd());
  randomize(model);
  nn::copy_state(model, without);
  const Variable source = token_input(2, 5, kVocab), target = token_input(2, 7, kVocab);
  {
    const random::StepScope step({.seed = 1, .step = 0});
    CHECK_FALSE(all_equal(model(source, target).tensor(), without(source, target).tensor()));
  }
  model.eval();
  CHECK(all_equal(model(source, target).tensor(), without(source, target).tensor()));
  options.dtype = DType::kBF16;
  EncoderDecoder narrow(options);
  nn::initialize(narrow);
  narrow.eval();
  CHECK(narrow(source, target).dtype() == DType::kBF16);
  CHECK(narrow(token_input(0, 5, kVocab), token_input(0, 7, kVocab)).shape() ==
        Shape{0, 7, kVocab});
}

TEST_CASE("a decoder block has the bits of its formula, with sums and norms apart") {
  EncoderDecoder model(odd());
  randomize(model);
  auto& block = child<DecoderBlock>(model, "decoder.1");
  const nn::AttentionForwardOptions causal{.is_causal = true}, all;
  const auto norm = [&](const char* name, const Variable& x) {
    return child<nn::LayerNorm>(block, name)(x);
  };
  CHECK(equals_formula(
      block, {.inputs = {{2, 5, 12}, {2, 3, 12}},
              .call = [&](const auto& in) { return block(in[0], in[1], causal, all); },
              .formula =
                  [&](const auto& in) {
                    auto& self = child<nn::MultiheadAttention>(block, "attention");
                    auto& cross = child<nn::MultiheadAttention>(block, "cross_attention");
                    Variable h = in[0] + self(norm("attention_norm", in[0]), causal).output;
                    h = h + cross(norm("cross_attention_norm", h), in[1], in[1], all).output;
                    return h + child<GeluFeedForward>(block, "feed_forward")(norm("ffn_norm", h));
                  },
              .adding_norms = {"cross_attention_norm", "ffn_norm"}}));
}

}  // namespace
}  // namespace tessera::models
