#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using testing::thrown;
using testing::values;

Variable random_input(const Shape& shape, std::uint64_t seed) {
  const Tensor x = Tensor::empty(shape, {.dtype = DType::kF64});
  random::fill_normal(x, random::named_key(seed, "input"), random::whole(shape), 0, 1);
  return Variable(x);
}

TEST_CASE("linear is x W^T + b over the last dim, for any number of rows") {
  nn::Linear layer({.in = 3, .out = 5, .dtype = DType::kF64});
  nn::initialize(layer);
  const std::vector<double> w = values(layer.weight().local().tensor());
  const std::vector<double> b = values(layer.bias().local().tensor());
  for (const Shape& shape : {Shape{4, 3}, Shape{0, 3}, Shape{2, 2, 3}, Shape{1, 3}}) {
    const Variable x = random_input(shape, 1);
    const Variable y = layer(x);
    CHECK(y.shape() == shape.with(shape.ndim() - 1, 5));
    const std::vector<double> in = values(x.tensor()), out = values(y.tensor());
    for (std::size_t i = 0; i < out.size(); ++i) {
      double expected = b[i % 5];
      for (std::size_t k = 0; k < 3; ++k) expected += in[i / 5 * 3 + k] * w[i % 5 * 3 + k];
      CHECK(std::abs(out[i] - expected) < 1e-14);
    }
  }
}

TEST_CASE("linear starts uniform in +-1/sqrt(in)") {
  nn::Linear layer({.in = 16, .out = 50});
  nn::initialize(layer);
  double largest = 0;
  for (const nn::Parameter& p : layer.parameters()) {
    for (double v : values(p.local().tensor())) largest = std::max(largest, std::abs(v));
  }
  CHECK(largest <= 0.25);
  CHECK(largest > 0.24);
}

TEST_CASE("linear names what does not fit") {
  nn::Linear layer({.in = 3, .out = 2, .bias = false});
  CHECK_FALSE(layer.has_bias());
  CHECK(layer.parameters().size() == 1);
  CHECK(thrown<StateError>([&] { layer.bias(); }) ==
        "[nn.Linear] \"weight\" has no bias: it was built with .bias = false");
  nn::initialize(layer, {.prefix = "head."});
  CHECK(thrown<InvalidArgument>([&] {
          layer(Variable(zeros({2, 4})));
        }) == "[nn.Linear] \"head.weight\" of shape [2, 3] expects an input [..., 3], got [2, 4]");
  CHECK(thrown<InvalidArgument>([&] { layer(Variable(zeros({}))); }).find("got []") !=
        std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          layer(random_input({2, 3}, 1));
        }) ==
        "[nn.Linear] \"head.weight\" is f32, the input f64: cast the input, or build the layer "
        "with .dtype");
  CHECK(thrown<InvalidArgument>([] { nn::Linear({.in = 0, .out = 2}); }) ==
        "[nn.Linear] expected in and out of at least 1, got in = 0, out = 2");
}

TEST_CASE("activations are their operations") {
  nn::ReLU relu_layer;
  nn::GELU gelu_layer;
  const Variable x(Tensor::from_vector<double>({-1.5, 0.0, 2.0}, {3}));
  CHECK(values(relu_layer(x).tensor()) == std::vector<double>{0, 0, 2});
  const std::vector<double> out = values(gelu_layer(x).tensor());
  const std::vector<double> in{-1.5, 0.0, 2.0};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::abs(out[i] - in[i] * 0.5 * (1 + std::erf(in[i] / std::sqrt(2.0)))) < 1e-14);
  }
}

TEST_CASE("sequential owns its layers, names them by number and calls them with their hooks") {
  nn::Sequential net;
  const Variable x = random_input({4, 3}, 2);
  CHECK(net(x).same_as(x));
  nn::Linear& first = net.add<nn::Linear>({.in = 3, .out = 6, .dtype = DType::kF64});
  net.add<nn::GELU>();
  nn::Sequential& inner = net.add<nn::Sequential>();
  nn::Linear& last =
      inner.add<nn::Linear>(nn::LinearOptions{.in = 6, .out = 2, .dtype = DType::kF64});
  nn::initialize(net);
  CHECK(net.size() == 3);
  CHECK(&net.at(0) == &first);
  CHECK(last.weight().name() == "2.0.weight");
  CHECK(net.named_modules()[4].name == "2.0");
  int calls = 0;
  for (const auto& named : net.named_modules()) {
    named.module->register_forward_pre_hook(
        [&](nn::Module&, const nn::VisitVariables&) { ++calls; });
  }
  CHECK(values(net(x).tensor()) == values(last(gelu(first(x))).tensor()));
  CHECK(calls == 5 + 2);
  CHECK(thrown<InvalidArgument>([&] { net.at(3); }) == "[nn.Sequential] index 3 of 3 layers");
  CHECK(thrown<InvalidArgument>([&] { net.at(-1); }) == "[nn.Sequential] index -1 of 3 layers");
}

TEST_CASE("an MLP learns") {
  nn::Sequential net;
  net.add<nn::Linear>({.in = 2, .out = 16});
  net.add<nn::GELU>();
  net.add<nn::Linear>({.in = 16, .out = 2});
  nn::initialize(net, {.seed = 1});
  nn::optim::SGD optimizer(net.parameters(), {.lr = 0.5, .momentum = 0.9});
  const Variable x(Tensor::from_vector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}));
  const Tensor y = Tensor::from_vector<std::int64_t>({0, 1, 1, 0}, {4});
  float first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const Variable loss = cross_entropy(net(x), y);
    last = loss.item<float>();
    if (step == 0) first = last;
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(first > 0.6f);
  CHECK(last < 0.01f);
}

}  // namespace
}  // namespace tessera
