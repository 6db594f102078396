// The mixture of experts as a language model on one rank: sizes, names, equality with Llama for one
// expert, decoding with a cache, errors.

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/nn/init.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/token_model_checks.h"
#include "tessera/tests/support/close.h"

namespace tessera::models {
namespace {

using testing::all_close;

constexpr testing::Tolerance kTight = {1e-12, 1e-12};

MixtureOfExpertsOptions tiny() {
  MixtureOfExpertsOptions options = mixture_of_experts_preset("tiny").options;
  options.dtype = DType::kF64;
  return options;
}

Tensor draw_tokens(const Shape& shape, std::int64_t vocab_size) {
  const Tensor tokens = Tensor::empty(shape, {.dtype = DType::kI64});
  random::fill_integers(tokens, random::named_key(2, "tokens"), random::whole(shape), 0,
                        vocab_size);
  return tokens;
}

std::int64_t count(const nn::Module& model) {
  std::int64_t elements = 0;
  for (const nn::Parameter& parameter : model.parameters()) elements += parameter.shape().numel();
  return elements;
}

TEST_CASE("Mixtral 8x7B has its published numbers of parameters") {
  const MixtureOfExpertsOptions& options = mixture_of_experts_preset("mixtral-8x7b").options;
  CHECK(count(MixtureOfExperts(options)) == 46'702'792'704);
  CHECK(active_parameters(options) == 12'879'925'248);
}

TEST_CASE("all parameters are active where tokens go to all experts") {
  for (const MixtureOfExpertsPreset& preset : mixture_of_experts_presets()) {
    INFO(preset.name);
    MixtureOfExpertsOptions options = preset.options;
    CHECK(active_parameters(options) < count(MixtureOfExperts(options)));
    options.top_k_experts = options.experts;
    CHECK(active_parameters(options) == count(MixtureOfExperts(options)));
    options.expert = ExpertKind::kGelu;
    CHECK(active_parameters(options) == count(MixtureOfExperts(options)));
  }
}

TEST_CASE("presets are found by name") {
  CHECK(std::string(mixture_of_experts_presets().front().name) == "small");
  CHECK(mixture_of_experts_preset("small-16e").options.experts == 16);
  CHECK(count(MixtureOfExperts(mixture_of_experts_preset("tiny").options)) < 100'000);
  CHECK_THROWS_WITH(mixture_of_experts_preset("huge"),
                    Catch::Contains("unknown preset \"huge\"; there are: small, tiny, small-16e, "
                                    "mixtral-8x7b"));
}

TEST_CASE("names have the number of the expert, and its values depend on it") {
  MixtureOfExperts model(tiny());
  nn::initialize(model, {.seed = 3});
  const auto expert = [&](int i) {
    return model.get_parameter("blocks.1.feed_forward.experts." + std::to_string(i) +
                               ".gate.weight");
  };
  CHECK(expert(4).name() == "blocks.1.feed_forward.experts.4.gate.weight");
  CHECK_FALSE(testing::all_equal(expert(0).local().tensor(), expert(1).local().tensor()).ok);
  CHECK(model.named_parameters()[1].name == "blocks.0.attention_norm.weight");
}

// Llama's feed-forward is one expert.
TEST_CASE("with one expert it is Llama") {
  MixtureOfExpertsOptions options = tiny();
  options.experts = options.top_k_experts = 1;
  options.dropout = 0.1;
  const LlamaOptions llama_options{.layers = options.layers,
                                   .vocab_size = options.vocab_size,
                                   .max_seq_len = options.max_seq_len,
                                   .dim = options.dim,
                                   .heads = options.heads,
                                   .kv_heads = options.kv_heads,
                                   .ffn_dim = options.ffn_dim,
                                   .dtype = options.dtype};
  MixtureOfExperts model(options);
  Llama llama(llama_options);
  nn::initialize(model, {.seed = 3});
  nn::initialize(llama, {.seed = 3});
  for (const nn::NamedParameter& each : llama.named_parameters()) {
    std::string name = each.name;
    const std::size_t at = name.find("feed_forward.");
    if (at != std::string::npos) name.insert(at + 13, "experts.0.");
    copy_(model.get_parameter(name).local().tensor(), each.parameter.local().tensor());
  }
  model.eval();
  llama.eval();
  const Variable tokens(draw_tokens({3, 17}, options.vocab_size));
  const Variable expected = llama(tokens);
  CHECK(expected.shape() == Shape{3, 17, options.vocab_size});
  CHECK(all_close(model(tokens).logits.tensor(), expected.tensor(), kTight).message == "");
}

TEST_CASE("the auxiliary loss is the sum of the blocks', and only in training") {
  MixtureOfExpertsOptions options = tiny();
  options.z_loss = 0.1;
  MixtureOfExperts model(options);
  nn::initialize(model, {.seed = 3});
  double blocks = 0;
  std::vector<HookHandle> hooks;
  for (MixtureOfExpertsBlock& block : model.blocks()) {
    hooks.push_back(block.feed_forward().register_forward_hook(
        [&blocks](nn::Module&, const nn::VisitVariables* results) {
          int i = 0;
          (*results)([&](Variable& result) {
            if (i++ == 1) blocks += result.item<double>();
          });
        }));
  }
  const Variable tokens(draw_tokens({2, 9}, options.vocab_size));
  const LanguageModelResult result = model(tokens);
  CHECK(blocks > 0);
  CHECK(result.auxiliary_loss.item<double>() == Approx(blocks).epsilon(1e-14));
  model.eval();
  CHECK_FALSE(model(tokens).auxiliary_loss.defined());
}

TEST_CASE("decoding with a cache gives the logits of the whole sequence") {
  MixtureOfExpertsOptions options = tiny();
  options.capacity_factor = 0.5;  // has no effect in evaluation
  MixtureOfExperts model(options);
  nn::initialize(model, {.seed = 3});
  model.eval();
  const NoGradGuard no_grad;
  const Tensor tokens = draw_tokens({3, 15}, options.vocab_size);
  const Tensor whole = model(Variable(tokens)).logits.tensor();
  DecodeCache cache(model.cached_layers(), 4);
  std::int64_t at = 0;
  for (const std::int64_t length : {6, 1, 1, 5, 2}) {
    const Variable part(contiguous(tokens.narrow(1, at, length)));
    const Tensor logits = model(part, DecodeCall{.cache = &cache}).logits.tensor();
    CHECK(all_close(logits, contiguous(whole.narrow(1, at, length)), kTight).message == "");
    at += length;
    CHECK(cache.length() == at);
  }
  const LanguageModel erased = language_model(model);
  CHECK(erased.vocab_size == options.vocab_size);
  CHECK(erased.max_length == options.max_seq_len);
  CHECK(testing::all_equal(erased.forward(tokens, {}).logits.tensor(), whole).ok);
}

TEST_CASE("it takes no batch, and learns") {
  MixtureOfExpertsOptions options = tiny();
  options.dropout = 0.1;
  MixtureOfExperts model(options);
  nn::initialize(model, {.seed = 3});
  CHECK(model(Variable(draw_tokens({0, 5}, options.vocab_size))).logits.shape() ==
        Shape{0, 5, options.vocab_size});
  const random::StepScope scope({.seed = 1, .step = 1});
  const Tensor tokens = draw_tokens({4, 10}, options.vocab_size);
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    const LanguageModelResult result = model(Variable(contiguous(tokens.narrow(1, 0, 9))));
    const Variable loss = cross_entropy(result.logits, contiguous(tokens.narrow(1, 1, 9)));
    backward(loss + result.auxiliary_loss);
    last = loss.item<double>();
    if (step == 0) first = last;
    for (nn::Parameter parameter : model.parameters()) {
      axpby_(parameter.local().tensor(), parameter.grad(), {.alpha = -0.5, .beta = 1});
      parameter.zero_grad();
    }
  }
  CHECK(first == Approx(std::log(61)).epsilon(0.02));
  CHECK(last < 0.8 * first);
}

TEST_CASE("16-bit models give 16-bit logits") {
  MixtureOfExpertsOptions options = tiny();
  options.dtype = DType::kBF16;
  MixtureOfExperts model(options);
  nn::initialize(model, {.seed = 3});
  const LanguageModelResult result = model(Variable(draw_tokens({2, 5}, options.vocab_size)));
  CHECK(result.logits.dtype() == DType::kBF16);
  CHECK(result.auxiliary_loss.dtype() == DType::kF32);
}

template <class Change>
void check_refused(const Change& change, const std::string& text) {
  MixtureOfExpertsOptions options = tiny();
  change(options);
  CHECK_THROWS_WITH(MixtureOfExperts(options), Catch::Contains(text));
}

TEST_CASE("options of the model outside their ranges are refused") {
  using Options = MixtureOfExpertsOptions;
  check_refused([](Options& o) { o.layers = 0; }, "layers is 0; it must be at least 1");
  check_refused([](Options& o) { o.vocab_size = 0; }, "vocab_size is 0");
  check_refused([](Options& o) { o.max_seq_len = 0; }, "max_seq_len is 0");
  check_refused([](Options& o) { o.dim = 0; }, "dim is 0");
  check_refused([](Options& o) { o.heads = 0; }, "heads is 0");
  check_refused([](Options& o) { o.kv_heads = 0; }, "kv_heads is 0");
  check_refused([](Options& o) { o.ffn_dim = 0; }, "ffn_dim is 0");
  check_refused([](Options& o) { o.heads = 5; }, "dim must be a multiple of heads");
  check_refused([](Options& o) { o.heads = o.kv_heads = 4; }, "make it even");
  check_refused([](Options& o) { o.kv_heads = 3; }, "kv_heads must divide heads");
  check_refused([](Options& o) { o.top_k_experts = 6; }, "top_k_experts is 6");
}

TEST_CASE("active parameters of options that no model has are refused") {
  MixtureOfExpertsOptions options = tiny();
  options.top_k_experts = 6;
  CHECK_THROWS_WITH(active_parameters(options), Catch::Contains("top_k_experts is 6"));
}

TEST_CASE("wrong tokens and meshes are refused") {
  MixtureOfExperts model(tiny());
  nn::initialize(model, {.seed = 3});
  CHECK_THROWS_WITH(model(Variable(draw_tokens({3}, 9))), Catch::Contains("[batch, length]"));
  CHECK_THROWS_WITH(model(Variable(draw_tokens({1, 25}, 9))), Catch::Contains("25 positions"));
  CHECK_THROWS_WITH(model.share_batch(nullptr), Catch::Contains("the mesh is null"));
  CHECK_THROWS_WITH(model.split_experts(nullptr), Catch::Contains("the mesh is null"));
  CHECK_THROWS_WITH(model.share_batch(nn::local_mesh(), "x"), Catch::Contains("unknown axis"));
  CHECK_THROWS_WITH(model.split_experts(nn::local_mesh(), "x"), Catch::Contains("unknown axis"));
}

TEST_CASE("a mixture's block has the bits of its formula, with sums and norms apart") {
  MixtureOfExpertsOptions options = tiny();
  options.dropout = 0;
  MixtureOfExperts model(options);
  testing::randomize(model);
  auto& block = testing::child<MixtureOfExpertsBlock>(model, "blocks.0");
  const nn::AttentionForwardOptions causal{.is_causal = true};
  const auto norm = [&](const char* name, const Variable& x) {
    return testing::child<nn::RMSNorm>(block, name)(x);
  };
  CHECK(testing::equals_formula(
      block, {.inputs = {{2, 5, options.dim}},
              .call = [&](const auto& in) { return block(in[0], causal).hidden; },
              .formula =
                  [&](const auto& in) {
                    auto& attention = testing::child<nn::MultiheadAttention>(block, "attention");
                    const Variable h =
                        in[0] + attention(norm("attention_norm", in[0]), causal).output;
                    return h + block.feed_forward()(norm("ffn_norm", h)).output;
                  },
              .adding_norms = {"ffn_norm"}}));
}

}  // namespace
}  // namespace tessera::models
