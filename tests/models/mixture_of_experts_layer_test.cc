// The feed-forward part of a mixture of experts on one rank: values against loops, gradients
// against differences, capacity, experts without tokens, precision, errors.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/expert_layers.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/models/plain_mixture.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::models {
namespace {

using testing::all_close;
using testing::all_equal;
using testing::plain_mixture;
using testing::PlainMixture;

constexpr testing::Tolerance kTight = {1e-12, 1e-12};

MixtureFeedForwardOptions options_of(double capacity_factor = 0) {
  return {.experts = 5,
          .top_k_experts = 2,
          .expert = {.dim = 7, .ffn_dim = 6, .dtype = DType::kF64},
          .capacity_factor = capacity_factor,
          .balance_loss = 0.3,
          .z_loss = 0.2};
}

// Weights of about 1, so that the router distinguishes tokens.
void start(MixtureFeedForward& model, double router = 1) {
  for (nn::Parameter parameter : model.parameters())
    parameter.set_init(nn::init::normal(0, parameter.shape()[0] == 5 ? router : 0.6));
  nn::initialize(model, {.seed = 4});
}

Tensor draw(const Shape& shape, const char* name) {
  const Tensor x = Tensor::empty(shape, {.dtype = DType::kF64});
  random::fill_normal(x, random::named_key(5, name), random::whole(shape), 0, 1);
  return x;
}

Tensor tensor_of(const PlainMixture& plain, const Shape& shape) {
  std::vector<double> values;
  for (const auto& row : plain.output) values.insert(values.end(), row.begin(), row.end());
  return Tensor::from_vector(values, shape);
}

void check_against_loops(const MixtureFeedForwardOptions& options, const Shape& shape) {
  MixtureFeedForward model(options);
  start(model);
  const Tensor x = draw(shape, "x");
  const MixtureFeedForwardResult result = model(Variable(x));
  const Tensor flat = x.view({x.numel() / shape.back(), shape.back()});
  const PlainMixture plain = plain_mixture(model, options, flat);
  CHECK(all_close(result.output.tensor(), tensor_of(plain, shape), kTight).message == "");
  const double auxiliary = options.balance_loss * plain.balance + options.z_loss * plain.z;
  REQUIRE(result.auxiliary_loss.defined());
  CHECK(result.auxiliary_loss.item<double>() == Approx(auxiliary).epsilon(1e-12));
}

TEST_CASE("values and losses are those of loops over tokens and experts") {
  check_against_loops(options_of(), {3, 11, 7});
  check_against_loops(options_of(), {7});
  for (const double factor : {0.2, 0.7, 1.0, 1.3}) check_against_loops(options_of(factor), {23, 7});
  for (std::int64_t top_k_experts = 1; top_k_experts <= 5; ++top_k_experts) {
    MixtureFeedForwardOptions options = options_of(0.9);
    options.top_k_experts = top_k_experts;
    options.normalize_weights = top_k_experts % 2 == 0;
    options.expert.kind = top_k_experts == 3 ? ExpertKind::kSwiGlu : ExpertKind::kGelu;
    check_against_loops(options, {19, 7});
  }
}

TEST_CASE("one expert that all tokens go to is that expert") {
  MixtureFeedForwardOptions options = options_of();
  options.experts = options.top_k_experts = 1;
  MixtureFeedForward model(options);
  start(model);
  const Variable x(draw({9, 7}, "x"));
  const Variable alone = model.experts()(x, std::vector<std::int64_t>{9});
  const MixtureFeedForwardResult result = model(x);
  CHECK(all_equal(result.output.tensor(), alone.tensor()).message == "");
}

TEST_CASE("gradients of the output and of the losses are those of differences") {
  const double factor = GENERATE(0.0, 0.8);
  const bool normalize = GENERATE(true, false);
  MixtureFeedForwardOptions options = options_of(factor);
  options.normalize_weights = normalize;
  MixtureFeedForward model(options);
  start(model);
  const Tensor x = draw({8, 7}, "x");
  const auto both = [&](const Variable& input) {
    const MixtureFeedForwardResult result = model(input);
    return cat(
        {reshape(result.output, {result.output.numel()}), reshape(result.auxiliary_loss, {1})});
  };
  const auto by_parameters =
      testing::parameter_grad_check(model, [&] { return both(Variable(x)); });
  CHECK(by_parameters.message == (by_parameters.passed ? by_parameters.message : ""));
  CHECK(by_parameters.passed);
  const auto by_input =
      grad_check([&](const std::vector<Variable>& in) { return both(in[0]); }, {Variable(x, true)});
  INFO(by_input.message);
  CHECK(by_input.passed);
}

TEST_CASE("a capacity that refuses nothing is as none, and infinity is none") {
  const Variable x(draw({13, 7}, "x"));
  MixtureFeedForward none(options_of()), wide(options_of(5)),
      infinite(options_of(std::numeric_limits<double>::infinity()));
  for (MixtureFeedForward* model : {&none, &wide, &infinite}) start(*model);
  const Tensor expected = none(x).output.tensor();
  CHECK(all_equal(wide(x).output.tensor(), expected).message == "");
  CHECK(all_equal(infinite(x).output.tensor(), expected).message == "");
}

TEST_CASE("in evaluation nothing is refused and there is no loss") {
  const Variable x(draw({13, 7}, "x"));
  MixtureFeedForward none(options_of()), narrow(options_of(0.3));
  start(none);
  start(narrow);
  CHECK_FALSE(all_equal(narrow(x).output.tensor(), none(x).output.tensor()).ok);
  narrow.eval();
  const MixtureFeedForwardResult result = narrow(x);
  CHECK(all_equal(result.output.tensor(), none(x).output.tensor()).message == "");
  CHECK_FALSE(result.auxiliary_loss.defined());
  MixtureFeedForwardOptions unweighted = options_of();
  unweighted.balance_loss = unweighted.z_loss = 0;
  MixtureFeedForward silent(unweighted);
  start(silent);
  CHECK_FALSE(silent(x).auxiliary_loss.defined());
}

// Equal tokens make equal choices: only the first of them are kept.
TEST_CASE("a token that every expert refuses has zeros, and the gradient of none") {
  MixtureFeedForward model(options_of(1));
  start(model);
  const Tensor row = draw({1, 7}, "row");
  const Variable x(contiguous(row.expand({10, 7})), true);
  const MixtureFeedForwardResult result = model(x);
  backward(sum(result.output));
  // ceil(10 * 2 / 5) = 4 of the ten.
  for (std::int64_t token = 0; token < 10; ++token) {
    const bool taken = token < 4;
    CHECK((testing::all_equal(result.output.tensor().select(0, token),
                              zeros({7}, {.dtype = DType::kF64}))
               .ok) == !taken);
    CHECK((testing::all_equal(x.grad().select(0, token), zeros({7}, {.dtype = DType::kF64})).ok) ==
          !taken);
  }
}

TEST_CASE("an expert without tokens, and a batch without any, has gradients of zeros") {
  MixtureFeedForward model(options_of());
  start(model);
  const std::int64_t tokens = GENERATE(1, 0);
  const MixtureFeedForwardResult result = model(Variable(draw({tokens, 7}, "x"), true));
  backward(sum(result.output) + result.auxiliary_loss);
  CHECK(result.auxiliary_loss.item<double>() >= 0);
  std::int64_t without = 0;
  for (const nn::NamedParameter& each : model.named_parameters()) {
    INFO(each.name);
    REQUIRE(each.parameter.grad().defined());
    const bool is_zero = all_equal(each.parameter.grad(), zeros_like(each.parameter.grad())).ok;
    if (each.name != "router.weight") without += is_zero ? 1 : 0;
  }
  CHECK(without == (tokens == 0 ? 15 : 9));
}

// The logits differ by less than bf16 can represent; in f32 the larger one is found.
TEST_CASE("the router computes in f32, also of bf16 and in autocast") {
  MixtureFeedForwardOptions options = options_of();
  options.expert.dtype = GENERATE(DType::kBF16, DType::kF32);
  Router router({.dim = 2, .experts = 2, .dtype = options.expert.dtype});
  nn::initialize(router, {});
  copy_(router.get_parameter("weight").local().tensor(),
        Tensor::from_vector(std::vector<double>{256, 0, 256, 1}, {2, 2}));
  const Variable x(cast(ones({1, 2}), options.expert.dtype));
  std::optional<AutocastGuard> guard;
  if (options.expert.dtype == DType::kF32) guard.emplace(DType::kBF16);
  const Variable logits = router(x);
  CHECK(logits.dtype() == DType::kF32);
  CHECK(logits.tensor().to_vector<float>() == std::vector<float>{256, 257});
}

TEST_CASE("bf16 results have the input's dtype, and losses are f32") {
  MixtureFeedForwardOptions options = options_of();
  MixtureFeedForward wide(options);
  options.expert.dtype = DType::kBF16;
  MixtureFeedForward narrow(options);
  start(wide);
  start(narrow);
  const std::vector<nn::Parameter> from = narrow.parameters(), to = wide.parameters();
  for (std::size_t i = 0; i < from.size(); ++i)
    copy_(to[i].local().tensor(), from[i].local().tensor());
  const Variable x(cast(draw({2, 3, 7}, "x"), DType::kBF16));
  const MixtureFeedForwardResult result = narrow(x);
  CHECK(result.output.dtype() == DType::kBF16);
  CHECK(result.auxiliary_loss.dtype() == DType::kF32);
  const Variable expected = wide(cast(x, DType::kF64)).output;
  CHECK(all_close(cast(result.output.tensor(), DType::kF64), expected.tensor(), {0.05, 0.05})
            .message == "");
}

TEST_CASE("on the null device tokens are taken as spread evenly") {
  MixtureFeedForward model(options_of(1.25));
  nn::initialize(model, {.device = kNull});
  const MixtureFeedForwardResult result =
      model(Variable(Tensor::empty({2, 6, 7}, {.dtype = DType::kF64, .device = kNull}), true));
  CHECK(result.output.shape() == Shape{2, 6, 7});
  backward(sum(result.output) + result.auxiliary_loss);
  for (const nn::Parameter& parameter : model.parameters()) CHECK(parameter.grad().defined());
}

template <class Change>
void check_refused(const Change& change, const std::string& text) {
  MixtureFeedForwardOptions options = options_of();
  change(options);
  CHECK_THROWS_WITH(MixtureFeedForward(options), Catch::Contains(text));
}

TEST_CASE("options of the layer outside their ranges are refused") {
  using Options = MixtureFeedForwardOptions;
  check_refused([](Options& o) { o.experts = 0; }, "experts is 0; it must be at least 1");
  check_refused([](Options& o) { o.top_k_experts = 0; },
                "top_k_experts is 0; it must lie in [1, 5]");
  check_refused([](Options& o) { o.top_k_experts = 6; },
                "top_k_experts is 6; it must lie in [1, 5]");
  check_refused([](Options& o) { o.capacity_factor = -0.5; }, "capacity_factor is -0.5");
  check_refused([](Options& o) { o.capacity_factor = NAN; }, "capacity_factor is nan");
  check_refused([](Options& o) { o.balance_loss = -1; }, "balance_loss is -1");
  check_refused([](Options& o) { o.z_loss = NAN; }, "z_loss nan");
  check_refused([](Options& o) { o.expert.ffn_dim = 0; }, "in and out of at least 1");
}

TEST_CASE("wrong inputs and ranks are refused") {
  MixtureFeedForward model(options_of());
  CHECK_THROWS_WITH(model(Variable(draw({3, 6}, "x"))),
                    Catch::Contains("expected an input [..., 7], got [3, 6]"));
  CHECK_THROWS_WITH(model.share_batch({.mesh = nullptr}), Catch::Contains("the mesh is null"));
  CHECK_THROWS_WITH(model.split_experts({.mesh = nullptr}), Catch::Contains("the mesh is null"));
  CHECK_THROWS_WITH(model.share_batch({.axis = "rows"}), Catch::Contains("unknown axis \"rows\""));
  model.split_experts({});
  CHECK_THROWS_AS(model.split_experts({}), StateError);
  CHECK_THROWS_WITH(model.split_experts({}),
                    Catch::Contains("the experts are split over 1 ranks already"));
}

}  // namespace
}  // namespace tessera::models
