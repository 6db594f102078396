// LayerNorm, RMSNorm and GroupNorm against plain loops.

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

struct Reference {
  std::size_t length;  // number of elements that are normalised together
  double eps = 1e-5;
  bool centered = true;
  // Which element of weight and bias the i-th of x is multiplied with.
  std::function<std::size_t(std::size_t)> parameter = [](std::size_t i) { return i; };
};

// Rows of x normalised, times weight, plus bias; those may be empty.
std::vector<double> normalised(const std::vector<double>& x, const std::vector<double>& weight,
                               const std::vector<double>& bias, const Reference& reference) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row * reference.length < x.size(); ++row) {
    const std::size_t first = row * reference.length, last = first + reference.length;
    double mean = 0, square = 0;
    for (std::size_t i = first; i < last; ++i) mean += x[i] / double(reference.length);
    if (!reference.centered) mean = 0;
    for (std::size_t i = first; i < last; ++i)
      square += (x[i] - mean) * (x[i] - mean) / double(reference.length);
    for (std::size_t i = first; i < last; ++i) {
      y[i] = (x[i] - mean) / std::sqrt(square + reference.eps);
      if (!weight.empty()) y[i] *= weight[reference.parameter(i) % weight.size()];
      if (!bias.empty()) y[i] += bias[reference.parameter(i) % bias.size()];
    }
  }
  return y;
}

// Irregular parameters instead of ones and zeros.
void scramble(nn::Module& module) {
  nn::initialize(module);
  std::uint64_t seed = 10;
  for (const nn::Parameter& p : module.parameters())
    copy_(p.local().tensor(), random_input(p.shape(), seed++).tensor());
}

void check_values(const Variable& y, const std::vector<double>& expected) {
  const std::vector<double> out = values(y.tensor());
  REQUIRE(out.size() == expected.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    CHECK(out[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-13));
}

TEST_CASE("layer norm normalises the last dims together") {
  for (const Shape& shape : {Shape{5}, Shape{3, 5}}) {
    for (const auto& [affine, bias] :
         {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
      nn::LayerNorm layer(
          {.shape = shape, .eps = 0.01, .affine = affine, .bias = bias, .dtype = DType::kF64});
      scramble(layer);
      CHECK(layer.has_weight() == affine);
      CHECK(layer.has_bias() == (affine && bias));
      const Variable x = random_input({2, 3, 5}, 1);
      const auto of = [](bool there, auto& layer_parameter) {
        return there ? values(layer_parameter().local().tensor()) : std::vector<double>();
      };
      const auto weight = [&]() -> nn::Parameter& { return layer.weight(); };
      const auto bias_of = [&]() -> nn::Parameter& { return layer.bias(); };
      check_values(layer(x), normalised(values(x.tensor()), of(layer.has_weight(), weight),
                                        of(layer.has_bias(), bias_of),
                                        {.length = std::size_t(shape.numel()), .eps = 0.01}));
      CHECK(testing::check_gradients(layer, x) == "");
    }
  }
}

TEST_CASE("layer norm starts as ones and zeros, and takes no rows") {
  nn::LayerNorm layer({.shape = {4}, .dtype = DType::kF64});
  nn::initialize(layer);
  CHECK(values(layer.weight().local().tensor()) == std::vector<double>(4, 1));
  CHECK(values(layer.bias().local().tensor()) == std::vector<double>(4, 0));
  CHECK(layer(random_input({0, 4}, 1)).shape() == Shape{0, 4});
  CHECK(testing::check_gradients(layer, random_input({0, 4}, 1)) == "");
  check_values(layer(random_input({4}, 1)),
               normalised(values(random_input({4}, 1).tensor()), {}, {}, {.length = 4}));
}

TEST_CASE("rms norm divides by the root of the mean square") {
  for (bool affine : {true, false}) {
    nn::RMSNorm layer({.shape = {3, 5}, .eps = 0.1, .affine = affine, .dtype = DType::kF64});
    scramble(layer);
    const Variable x = random_input({2, 3, 5}, 2);
    check_values(layer(x), normalised(values(x.tensor()),
                                      affine ? values(layer.weight().local().tensor())
                                             : std::vector<double>(),
                                      {}, {.length = 15, .eps = 0.1, .centered = false}));
    CHECK(testing::check_gradients(layer, x) == "");
    CHECK(layer(random_input({0, 3, 5}, 1)).shape() == Shape{0, 3, 5});
  }
}

TEST_CASE("rms norm's eps is, where none is given, the machine epsilon") {
  nn::RMSNorm layer({.shape = {2}, .affine = false});
  const double tiny = 1e-9;
  const Tensor x = full({1, 2}, tiny, {.dtype = DType::kF64});
  const double in_f64 = values(layer(Variable(x)).tensor())[0];
  CHECK(in_f64 == Approx(tiny / std::sqrt(tiny * tiny + std::numeric_limits<double>::epsilon())));
  const double in_f32 = values(layer(Variable(cast(x, DType::kF32))).tensor())[0];
  CHECK(in_f32 == Approx(tiny / std::sqrt(std::numeric_limits<float>::epsilon())));
}

TEST_CASE("group norm normalises each group of channels of a sample") {
  for (const Shape& shape : {Shape{2, 6, 3, 2}, Shape{3, 6}, Shape{2, 6, 5}}) {
    for (std::int64_t groups : {1, 2, 3, 6}) {
      const bool bias = groups != 3;
      nn::GroupNorm layer(
          {.groups = groups, .channels = 6, .eps = 0.02, .bias = bias, .dtype = DType::kF64});
      CHECK(layer.has_weight());
      CHECK(layer.has_bias() == bias);
      CHECK(layer.parameters().size() == (bias ? 2 : 1));
      scramble(layer);
      const Variable x = random_input(shape, 3);
      const std::size_t spatial = std::size_t(shape.numel() / shape[0] / 6);
      const Reference reference{.length = 6 / std::size_t(groups) * spatial,
                                .eps = 0.02,
                                .parameter = [=](std::size_t i) { return i / spatial; }};
      const std::vector<double> added =
          bias ? values(layer.bias().local().tensor()) : std::vector<double>();
      check_values(layer(x), normalised(values(x.tensor()), values(layer.weight().local().tensor()),
                                        added, reference));
      if (groups == 2 || groups == 3) CHECK(testing::check_gradients(layer, x) == "");
    }
  }
  nn::GroupNorm plain({.groups = 2, .channels = 4, .affine = false});
  CHECK_FALSE(plain.has_weight());
  CHECK(plain(random_input({0, 4, 3}, 1)).shape() == Shape{0, 4, 3});
  CHECK(testing::check_gradients(plain, random_input({2, 4, 3}, 1)) == "");
}

TEST_CASE("a saved state without biases loads into norms without") {
  const auto check = []<class L>(typename L::Options options) {
    options.bias = true;
    L with(options);
    options.bias = false;
    L without(options);
    scramble(with);
    nn::initialize(without);
    nn::StateDict state = nn::state_dict(with).clone();
    CHECK(state.erase("bias"));
    CHECK(nn::load_state_dict(without, state).missing.empty());
    CHECK(values(without.weight().local().tensor()) == values(with.weight().local().tensor()));
  };
  check.operator()<nn::LayerNorm>({.shape = {4}});
  check.operator()<nn::GroupNorm>({.groups = 2, .channels = 4});
  check.operator()<nn::BatchNorm1d>({.channels = 4});
  check.operator()<nn::BatchNorm2d>({.channels = 4});
}

TEST_CASE("norms of 16 bits are computed in f32, with parameters of either") {
  CHECK(testing::check_16_bits<nn::LayerNorm>({.shape = {7}}, random_input({5, 7}, 1)) == "");
  CHECK(testing::check_16_bits<nn::RMSNorm>({.shape = {7}}, random_input({5, 7}, 1)) == "");
  CHECK(testing::check_16_bits<nn::GroupNorm>({.groups = 2, .channels = 4},
                                              random_input({3, 4, 5}, 1)) == "");
  nn::LayerNorm wide({.shape = {7}});
  nn::initialize(wide);
  const Variable x(cast(random_input({5, 7}, 1).tensor(), DType::kBF16));
  CHECK(wide(x).dtype() == DType::kBF16);
  const AutocastGuard autocast(DType::kBF16);
  CHECK(wide(x).dtype() == DType::kF32);
}

TEST_CASE("norms name what does not fit") {
  CHECK(thrown<InvalidArgument>([] { nn::LayerNorm({.shape = {}}); }) ==
        "[nn.LayerNorm] shape is []; it needs at least one dim, and extents of at least 1");
  CHECK(thrown<InvalidArgument>([] {
          nn::RMSNorm({.shape = {3, 0}});
        }) == "[nn.RMSNorm] shape is [3, 0]; it needs at least one dim, and extents of at least 1");
  CHECK(thrown<InvalidArgument>([] { nn::LayerNorm({.shape = {3}, .eps = -1}); }) ==
        "[nn.LayerNorm] eps is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([] { nn::GroupNorm({.groups = 4, .channels = 6}); }) ==
        "[nn.GroupNorm] groups = 4 must divide channels = 6, both at least 1");
  nn::LayerNorm layer({.shape = {3, 2}, .bias = false});
  nn::RMSNorm rms({.shape = {2}, .affine = false});
  nn::GroupNorm group({.groups = 2, .channels = 4, .affine = false});
  nn::initialize(layer, {.prefix = "norm."});
  CHECK(thrown<InvalidArgument>([&] {
          layer(Variable(zeros({4, 2})));
        }) == "[nn.LayerNorm] the root module: expected an input that ends in [3, 2], got [4, 2]");
  CHECK(thrown<InvalidArgument>([&] { layer(Variable(zeros({2}))); }).find("got [2]") !=
        std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          group(Variable(zeros({4, 2})));
        }) == "[nn.GroupNorm] the root module: expected an input [samples, 4, ...], got [4, 2]");
  CHECK(thrown<InvalidArgument>([&] {
          layer(random_input({3, 2}, 1));
        }) ==
        "[nn.LayerNorm] \"norm.weight\" is f32, the input f64: cast the input, or build the layer "
        "with .dtype");
  CHECK(thrown<StateError>([&] { layer.bias(); }) ==
        "[nn.LayerNorm] no bias: it was built with .affine = false or .bias = false");
  CHECK(thrown<StateError>([&] { rms.weight(); }) ==
        "[nn.RMSNorm] no weight: it was built with .affine = false");
  CHECK(thrown<StateError>([&] { group.bias(); }) ==
        "[nn.GroupNorm] no bias: it was built with .affine = false or .bias = false");
  CHECK(thrown<StateError>([&] { group.weight(); }) ==
        "[nn.GroupNorm] no weight: it was built with .affine = false");
}

}  // namespace
}  // namespace tessera
