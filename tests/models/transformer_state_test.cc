// The small Transformer's layout: names, order, counts, initial values; invalid options and inputs.

#include <algorithm>
#include <cmath>
#include <string>

#include <catch2/catch.hpp>

#include "tessera/autograd/grad_mode.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/models/token_model_checks.h"
#include "tessera/tests/support/close.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;
using testing::all_equal;
using Names = std::vector<std::string>;

std::int64_t elements(const nn::Module& model) {
  std::int64_t out = 0;
  for (const nn::Parameter& parameter : model.parameters()) out += parameter.shape().numel();
  return out;
}

Names names(Transformer& model) {
  Names out;
  for (const auto& [name, parameter] : model.named_parameters()) out.push_back(name);
  return out;
}

TEST_CASE("modules and parameters have the names and order of the tests' Transformer") {
  Transformer model;
  Names modules, block;
  for (const auto& [name, module] : model.named_modules()) modules.push_back(name);
  Names expected = {"", "tok_embeddings", "pos_embeddings", "dropout", "layers"};
  for (const std::string layer : {"layers.0", "layers.1"}) {
    expected.push_back(layer);
    for (const char* part :
         {"attention_norm", "attention", "attention.resid_dropout", "attention.wq", "attention.wk",
          "attention.wv", "attention.wo", "ffn_norm", "feed_forward", "feed_forward.w1",
          "feed_forward.gelu", "feed_forward.w2", "feed_forward.resid_dropout"}) {
      expected.push_back(layer + "." + part);
    }
  }
  expected.insert(expected.end(), {"norm", "output"});
  CHECK(modules == expected);

  expected = {"tok_embeddings.weight", "pos_embeddings.weight"};
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    for (const char* part :
         {"attention_norm.weight", "attention_norm.bias", "attention.wq.weight",
          "attention.wk.weight", "attention.wv.weight", "attention.wo.weight", "ffn_norm.weight",
          "ffn_norm.bias", "feed_forward.w1.weight", "feed_forward.w1.bias",
          "feed_forward.w2.weight", "feed_forward.w2.bias"}) {
      expected.push_back(layer + part);
    }
  }
  expected.insert(expected.end(), {"norm.weight", "norm.bias"});
  CHECK(names(model) == expected);
  expected.push_back("output.weight");
  Transformer untied({.weight_tying = false});
  CHECK(names(untied) == expected);
}

TEST_CASE("counts are those that the sharding tests name") {
  struct Counts {
    ModelArgs args;
    std::size_t modules, tensors;
    std::int64_t elements;
  };
  const Counts all[] = {
      {{}, 35, 28, 6848},
      {{.weight_tying = false}, 35, 29, 6976},
      {{.layers = 3}, 49, 40, 10064},
      {{.layers = 3, .vocab_size = 1024, .max_seq_len = 64}, 49, 40, 27088},
      {{.layers = 3, .vocab_size = 1024, .max_seq_len = 64, .weight_tying = false}, 49, 41, 43472},
      {{.layers = 3, .vocab_size = 32, .dim = 768, .heads = 12, .weight_tying = false},
       49,
       41,
       21317376},
      {{.layers = 0}, 7, 4, 416},
  };
  for (const Counts& counts : all) {
    Transformer model(counts.args);  // allocates nothing
    CHECK(model.named_modules().size() == counts.modules);
    CHECK(model.named_parameters().size() == counts.tensors);
    CHECK(elements(model) == counts.elements);
    CHECK(model.blocks().size() == static_cast<std::size_t>(counts.args.layers));
  }
  Transformer large({.dim = 768, .heads = 12});
  CHECK(elements(large.blocks()[0]) == 7084800);
  CHECK(elements(Transformer().blocks()[1]) == 3216);
}

TEST_CASE("layers start as in PyTorch") {
  Transformer model({.vocab_size = 64, .dim = 64});
  nn::initialize(model, {.seed = 3});
  for (const auto& [name, parameter] : model.named_parameters()) {
    INFO(name);
    double low = 0, high = 0, squares = 0;
    const Tensor values = parameter.local().tensor();
    for (const float value : values.to_vector<float>()) {
      low = std::min<double>(low, value);
      high = std::max<double>(high, value);
      squares += static_cast<double>(value) * value;
    }
    const double rms = std::sqrt(squares / static_cast<double>(values.numel()));
    if (name.ends_with("_embeddings.weight")) {
      CHECK(std::abs(rms - 1) < 0.1);
    } else if (name.find("norm") != std::string::npos) {
      CHECK(all_equal(values, name.ends_with("weight") ? ones_like(values) : zeros_like(values)));
    } else {
      const double bound = name.find("w2") == std::string::npos ? 1.0 / 8 : 1.0 / 16;
      CHECK((low >= -bound && high <= bound && high - low > 1.8 * bound));
    }
  }
}

TEST_CASE("what does not fit is refused by name") {
  CHECK_THROWS_WITH(Transformer({.layers = -1}),
                    Contains("[models.Transformer] layers is -1; it must be at least 0"));
  CHECK_THROWS_WITH(Transformer({.vocab_size = 0}), Contains("vocab_size is 0"));
  CHECK_THROWS_WITH(Transformer({.max_seq_len = 0}), Contains("max_seq_len is 0"));
  CHECK_THROWS_WITH(Transformer({.dim = 0}), Contains("dim is 0"));
  CHECK_THROWS_WITH(Transformer({.heads = 0}), Contains("heads is 0"));
  CHECK_THROWS_WITH(Transformer({.dim = 10, .heads = 4}),
                    Contains("dim is 10, heads 4; dim must be a multiple of heads"));
  CHECK_THROWS_AS(Transformer({.dropout = 1.5}), InvalidArgument);
  for (const ModelArgs& args : {ModelArgs{.dim = 0}, ModelArgs{.dim = 6, .heads = 4}}) {
    CHECK_THROWS_AS(Attention(args), InvalidArgument);
    CHECK_THROWS_AS(FeedForward(args), InvalidArgument);
    CHECK_THROWS_AS(TransformerBlock(args), InvalidArgument);
  }

  Transformer model;
  nn::initialize(model);
  CHECK_THROWS_WITH(model(zeros({1, 17}, {.dtype = DType::kI64})),
                    Contains("[models.Transformer] got 17 positions, the model computes 16"));
  CHECK_THROWS_WITH(model(Tensor::from_vector<std::int64_t>({1, 2}, {2})),
                    Contains("expected tokens [batch, length], got [2]"));
  CHECK_THROWS_AS(model(zeros({1, 2})), InvalidArgument);
  const Tensor unknown = full({1, 2}, 8, {.dtype = DType::kI64});
  CHECK_THROWS_AS(model(unknown).tensor().to_vector<float>(), InvalidArgument);
  Attention attention(ModelArgs{});
  nn::initialize(attention);
  CHECK_THROWS_WITH(attention(Variable(zeros({4, 16}))),
                    Contains("[models.Attention] expected x [batch, length, dim], got [4, 16]"));
  CHECK_THROWS_AS(attention(Variable(zeros({1, 4, 8}))), InvalidArgument);
}

}  // namespace

namespace {

// State dicts of the small Transformer: the tied weight is saved once and loads from any of its
// names.

using testing::all_equal;

constexpr const char* kFirst = "tok_embeddings.weight";
constexpr const char* kSecond = "output.weight";

Tensor logits(Transformer& model) {
  model.eval();
  return model(arange(8).view({1, 8})).tensor();
}

TEST_CASE("a tied weight is saved once, under its first name") {
  Transformer tied, untied({.weight_tying = false});
  nn::initialize(tied, {.seed = 3});
  nn::initialize(untied, {.seed = 3});
  const nn::StateDict state = nn::state_dict(tied);
  CHECK(state.size() == 28);
  CHECK(state.contains(kFirst));
  CHECK_FALSE(state.contains(kSecond));
  CHECK(nn::state_dict(untied).size() == 29);
}

TEST_CASE("a tied weight is loaded from its first name, its second, or both where they are equal") {
  Transformer model;
  nn::initialize(model, {.seed = 3});
  nn::StateDict state = nn::state_dict(model);
  const Tensor weight = state.tensor(kFirst);
  const std::string which = GENERATE("first", "second", "both");
  if (which != "first") state.set(kSecond, clone(weight));
  if (which == "second") state.erase(kFirst);
  Transformer loaded({.checkpoint_activations = true});
  nn::load_state_dict(loaded, state);
  CHECK(all_equal(loaded.get_parameter(kSecond).local().tensor(), weight));
  CHECK(all_equal(logits(loaded), logits(model)));
}

TEST_CASE("a tied weight that stands twice with unlike elements is refused") {
  Transformer model;
  nn::initialize(model, {.seed = 3});
  nn::StateDict state = nn::state_dict(model);
  const Tensor other = clone(state.tensor(kFirst));
  fill_(other.select(0, 0), 7);
  state.set(kSecond, other);
  const Tensor before = logits(model);
  CHECK_THROWS_AS(nn::load_state_dict(model, state), InvalidArgument);
  CHECK(all_equal(logits(model), before));
}

}  // namespace

namespace {

// The small Transformer as a language model: decoding with a cache, presets.

using Catch::Matchers::Contains;
using testing::CloseResult;
using testing::count_elements;
using testing::token_input;

static_assert(IsLanguageModel<Transformer>);

TEST_CASE("transformer: decoding with a cache gives the logits of one call") {
  Transformer model({.layers = 3,
                     .vocab_size = 11,
                     .max_seq_len = 9,
                     .dim = 12,
                     .heads = 3,
                     .dropout = 0,
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
  Transformer model({.dropout = 0}), unmasked({.dropout = 0, .use_attn_mask = false});
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
    CHECK(count_elements(Transformer(o)) ==
          (o.vocab_size + o.max_seq_len + 2) * o.dim + o.layers * (12 * o.dim * o.dim + 9 * o.dim));
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
