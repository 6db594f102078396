// MultiheadAttention: dropout, autocast and 16 bits, hooks, and the text of every error.
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/layers/transformer/attention_weights.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {
namespace {

using nn::AttentionForwardOptions;
using nn::MultiheadAttention;

struct Holder final : nn::Layer<Holder> {
  Holder() : attention({.dim = 4, .heads = 2, .dropout = 0.4, .dtype = DType::kF64}) {
    register_module("attention", attention);
  }
  Variable forward(const Variable& x) { return attention(x).output; }
  MultiheadAttention attention;
};

TEST_CASE("attention drops probabilities in training, alike in both paths and for any ranks") {
  Holder model;
  fill_with_waves(model);
  const Variable x = wave_input({4, 5, 4}, 0.2);
  const auto run = [&](const Variable& in, std::int64_t first_sample, bool need_weights) {
    const random::StepScope step({.seed = 3, .step = 7, .first_sample = first_sample});
    return values(
        model.attention(in, AttentionForwardOptions{.need_weights = need_weights}).output.tensor());
  };
  const std::vector<double> dropped = run(x, 0, false);
  check_close(run(x, 0, true), dropped);
  check_close(run(narrow(x, 0, 2, 2), 2, false), {dropped.begin() + 40, dropped.end()});
  model.eval();
  const std::vector<double> whole = run(x, 0, false);
  CHECK(whole != dropped);
  check_close(run(x, 0, true), whole);
  const random::StepScope step({.seed = 3, .step = 7});
  model.train();
  const std::vector<double> first = values(model(x).tensor());
  CHECK(first != values(model(x).tensor()));  // the second call of a step draws anew
  CHECK(first == dropped);
}

TEST_CASE("a root of attention draws under its type's name") {
  MultiheadAttention layer({.dim = 4, .heads = 2, .dropout = 1, .dtype = DType::kF64});
  fill_with_waves(layer);
  const Variable x = wave_input({1, 2, 4}, 0.2);
  const std::vector<double> bias = values(layer.out_proj().bias().local().tensor());
  std::vector<double> twice = bias;
  twice.insert(twice.end(), bias.begin(), bias.end());
  check_close(values(layer(x).output.tensor()), twice);
}

TEST_CASE("attention_with_weights takes a box of the global probabilities") {
  const Variable x = wave_input({2, 2, 3, 4}, 0.1);
  const random::Box box{.global = {5, 4, 3, 3}, .offset = {3, 2, 0, 0}};
  const AttentionLayerOptions options{.dropout_p = 0.5, .layer = "a", .box = box};
  const auto scoped = [](auto&& body) {
    const random::StepScope step({.seed = 1});
    return values(body().tensor());
  };
  check_close(scoped([&] { return nn::attention_with_weights(x, x, x, options).output; }),
              scoped([&] { return scaled_dot_product_attention(x, x, x, options); }));
}

TEST_CASE("attention in 16 bits, and in autocast") {
  MultiheadAttention layer({.dim = 8, .heads = 2, .dtype = DType::kF64});
  fill_with_waves(layer);
  const Variable x = wave_input({2, 3, 8}, 0.2);
  const std::vector<double> exact = values(layer(x).output.tensor());
  layer.to(DType::kF32);
  const Variable x32(cast(x.tensor(), DType::kF32));
  check_close(values(layer(x32).output.tensor()), exact, 1e-6);
  for (const bool need_weights : {false, true}) {
    const AutocastGuard autocast(DType::kBF16);
    const auto call = AttentionForwardOptions{.need_weights = need_weights};
    const Variable y = layer(x32, call).output;
    CHECK(y.dtype() == DType::kBF16);
    check_close(values(cast(y.tensor(), DType::kF64)), exact, 0.02);
    // The next layer's input is of 16 bits, its weights are not.
    CHECK(layer(y, call).output.dtype() == DType::kBF16);
  }
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    layer.to(dtype);
    const Variable in(cast(x.tensor(), dtype));
    const auto call = AttentionForwardOptions{.is_causal = true, .need_weights = true};
    check_close(values(cast(layer(in).output.tensor(), DType::kF64)), exact, 0.02);
    check_close(values(cast(layer(in, call).output.tensor(), DType::kF64)),
                values(cast(layer(in, AttentionForwardOptions{.is_causal = true}).output.tensor(),
                            DType::kF64)),
                0.02);
  }
}

TEST_CASE("hooks see attention's inputs and both results") {
  MultiheadAttention layer({.dim = 4, .heads = 2, .dtype = DType::kF64});
  fill_with_waves(layer);
  int arguments = 0, results = 0;
  const auto before =
      layer.register_forward_pre_hook([&](nn::Module&, const nn::VisitVariables& visit) {
        visit([&](Variable&) { ++arguments; });
      });
  const auto after = layer.register_forward_hook([&](nn::Module&, const nn::VisitVariables* visit) {
    (*visit)([&](Variable&) { ++results; });
  });
  const Variable x = wave_input({1, 2, 4}, 0.2);
  layer(x);
  CHECK(arguments == 1);
  CHECK(results == 1);
  layer(x, x, x, AttentionForwardOptions{.need_weights = true});
  CHECK(arguments == 4);
  CHECK(results == 3);
}

TEST_CASE("attention computed again in backward drops the same and gives the same gradients") {
  Holder model;
  fill_with_waves(model);
  const auto gradients = [&](bool recomputed) {
    model.attention.set_recomputed(recomputed);
    for (nn::Parameter& p : model.parameters()) p.zero_grad();
    const random::StepScope step({.seed = 3, .step = 1});
    const Variable x = wave_input({2, 3, 4}, 0.2);
    const AttentionForwardOptions call{.is_causal = true};
    backward(weigh(model.attention(x, call).output));
    std::vector<double> out = values(x.grad());
    for (const double g : weighed_gradients(model)) out.push_back(g);
    return out;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("attention on the null device knows its shapes") {
  const auto rotary =
      std::make_shared<nn::RotaryEmbedding>(nn::RotaryEmbeddingOptions{.dim = 4, .max_length = 5});
  MultiheadAttention layer({.dim = 8, .heads = 2, .kv_heads = 1, .rotary = rotary});
  nn::initialize(layer, {.device = kNull});
  const Variable x(empty({2, 3, 8}, {.device = kNull}), true);
  const TensorOptions truth{.dtype = DType::kBool, .device = kNull};
  AttentionForwardOptions call{
      .attn_mask = nn::generate_square_subsequent_mask(3, {.dtype = DType::kF32, .device = kNull}),
      .key_padding_mask = empty({2, 3}, truth),
      .is_causal = true};
  for (const bool need_weights : {false, true}) {
    call.need_weights = need_weights;
    const auto result = layer(x, call);
    CHECK(result.output.shape() == Shape{2, 3, 8});
    backward(sum(result.output));
    CHECK(x.grad().shape() == x.shape());
  }
  const NoGradGuard no_grad;
  nn::KeyValueCache cache({.capacity = 1});
  CHECK(layer(x.detach(), AttentionForwardOptions{.cache = &cache}).output.device() == kNull);
  CHECK(cache.keys().shape() == Shape{2, 1, 3, 4});
}

TEST_CASE("attention's options name what is wrong") {
  const auto built = [](const nn::MultiheadAttentionOptions& options) {
    return thrown<InvalidArgument>([&] { MultiheadAttention{options}; });
  };
  const std::string where = "[nn.MultiheadAttention] ";
  CHECK(built({.dim = 5, .heads = 2}) ==
        where +
            "expected dim and heads of at least 1, and dim a multiple of heads; got dim = 5, "
            "heads = 2");
  CHECK(built({.dim = 4, .heads = 0}).find("heads = 0") != std::string::npos);
  CHECK(built({.dim = 0, .heads = 1}).find("dim = 0") != std::string::npos);
  CHECK(built({.dim = 8, .heads = 4, .kv_heads = 3}) ==
        where + "expected kv_heads to divide heads; got kv_heads = 3, heads = 4");
  CHECK(built({.dim = 8, .heads = 4, .kv_heads = -1}).find("kv_heads = -1") != std::string::npos);
  CHECK(built({.dim = 8, .heads = 4, .kdim = -1}) ==
        where + "expected kdim and vdim of at least 1, or 0 for dim; got kdim = -1, vdim = 0");
  CHECK(built({.dim = 8, .heads = 4, .vdim = -2}).find("vdim = -2") != std::string::npos);
  CHECK(built({.dim = 8, .heads = 4, .dropout = 1.5}) ==
        where + "dropout is 1.5; it must lie in [0, 1]");
  const auto rotary =
      std::make_shared<nn::RotaryEmbedding>(nn::RotaryEmbeddingOptions{.dim = 4, .max_length = 5});
  CHECK(built({.dim = 8, .heads = 4, .rotary = rotary}) ==
        where + "the rotary embedding turns 4 features, and a head has 2");
}

TEST_CASE("attention's inputs name what is wrong") {
  Holder model;
  nn::initialize(model);
  const auto called = [&](const Shape& query, const Shape& key, const Shape& value) {
    return thrown<InvalidArgument>(
        [&] { model.attention(wave_input(query, 0), wave_input(key, 0), wave_input(value, 0)); });
  };
  const std::string where = "[nn.MultiheadAttention] ";
  CHECK(called({2, 3, 5}, {2, 3, 4}, {2, 3, 4}) ==
        where +
            "\"attention.in_proj_weight\" of shape [12, 4] expects a query [batch, length, 4], "
            "got [2, 3, 5]");
  CHECK(called({3, 4}, {3, 4}, {2, 3, 4}).find("got [3, 4]") != std::string::npos);
  CHECK(called({3, 5}, {3, 4}, {3, 4}).find("got [1, 3, 5]") != std::string::npos);
  CHECK(called({2, 3, 4}, {2, 3, 5}, {2, 3, 4}).find("expects a key") != std::string::npos);
  CHECK(called({2, 3, 4}, {2, 3, 4}, {2, 3, 5}).find("expects a value") != std::string::npos);
  const std::string unlike =
      " do not fit: all need one batch (dim 0), key and value one length (dim 1)";
  CHECK(called({2, 3, 4}, {1, 3, 4}, {2, 3, 4}) ==
        where + "query [2, 3, 4], key [1, 3, 4] and value [2, 3, 4]" + unlike);
  CHECK(called({2, 3, 4}, {2, 3, 4}, {1, 3, 4}).find(unlike) != std::string::npos);
  CHECK(called({2, 3, 4}, {2, 3, 4}, {2, 2, 4}).find(unlike) != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          model.attention(Variable(zeros({2, 3, 4})));
        }) == where +
                  "\"attention.in_proj_weight\" is f64, the query f32: cast it, or build the "
                  "layer with .dtype");
  MultiheadAttention sequence_first(
      {.dim = 4, .heads = 2, .kdim = 3, .batch_first = false, .dtype = DType::kF64});
  nn::initialize(sequence_first);
  CHECK(thrown<InvalidArgument>([&] {
          sequence_first(wave_input({2, 3, 4}, 0));
        }) ==
        where +
            "\"k_proj_weight\" of shape [4, 3] expects a key [length, batch, 3], got [2, 3, 4]");
}

TEST_CASE("attention_with_weights names what does not fit") {
  const std::string where = "[nn.attention_with_weights] ";
  const auto called = [&](const Shape& q, const Shape& k) {
    return thrown<InvalidArgument>(
        [&] { nn::attention_with_weights(wave_input(q, 0), wave_input(k, 0), wave_input(k, 0)); });
  };
  CHECK(called({2, 3, 4}, {2, 1, 3, 4}) ==
        where + "needs q, k and v [batch, heads, length, dim], got one of shape [2, 3, 4]");
  CHECK(called({2, 3, 2, 4}, {2, 2, 3, 4}) ==
        where + "q has 3 heads, k and v 2; those of q must be a multiple of theirs");
}

}  // namespace
}  // namespace tessera::testing
