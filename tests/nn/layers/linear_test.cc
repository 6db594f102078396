// Linear against a plain loop; what it starts with; what it refuses.

#include "tessera/nn/layers/linear.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

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

TEST_CASE("linear: derivatives and 16 bits") {
  for (bool bias : {true, false}) {
    nn::Linear layer({.in = 3, .out = 5, .bias = bias, .dtype = DType::kF64});
    nn::initialize(layer);
    CHECK(testing::check_gradients(layer, random_input({4, 3}, 2)) == "");
    CHECK(testing::check_gradients(layer, random_input({0, 3}, 2)) == "");
  }
  CHECK(testing::check_16_bits<nn::Linear>({.in = 7, .out = 3}, random_input({5, 7}, 3)) == "");
}

TEST_CASE("linear with aligned rows: the values and derivatives of packed rows") {
  for (bool bias : {true, false}) {
    nn::Linear layer(
        {.in = 3, .out = 5, .bias = bias, .dtype = DType::kF64, .pitch = RowPitch::kAligned});
    nn::initialize(layer);
    const std::int64_t pitch = default_device().is_cpu() ? 5 : 6;
    CHECK(layer(random_input({2, 4, 3}, 1)).tensor().strides() == Shape{4 * pitch, pitch, 1});
    CHECK(testing::check_gradients(layer, random_input({2, 4, 3}, 2)) == "");
    CHECK(testing::check_gradients(layer, random_input({0, 3}, 2)) == "");
  }
  for (const std::int64_t out : {3, 1029}) {
    CHECK(testing::check_16_bits<nn::Linear>({.in = 7, .out = out, .pitch = RowPitch::kAligned},
                                             random_input({5, 7}, 3)) == "");
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

TEST_CASE("linear starts with the values that its options name") {
  nn::Linear layer(
      {.in = 3, .out = 5, .weight_init = nn::init::eye(), .bias_init = nn::init::constant(0.5)});
  for (const auto& [name, parameter] : layer.named_parameters()) {
    parameter.materialize(default_device());  // one by one, instead of nn::initialize
    parameter.reset({.value = 1});
  }
  const std::vector<double> w = values(layer.weight().local().tensor());
  for (std::size_t i = 0; i < 15; ++i) CHECK(w[i] == (i / 3 == i % 3 ? 1 : 0));
  CHECK(values(layer.bias().local().tensor()) == std::vector<double>(5, 0.5));
  // One of them alone; the other is as ever.
  nn::Linear half({.in = 3, .out = 5, .bias_init = nn::init::zeros()}), plain({.in = 3, .out = 5});
  nn::initialize(half);
  nn::initialize(plain);
  CHECK(values(half.weight().local().tensor()) == values(plain.weight().local().tensor()));
  CHECK(values(half.bias().local().tensor()) == std::vector<double>(5, 0.0));
  CHECK(thrown<InvalidArgument>([] {
          nn::Linear({.in = 3, .out = 5, .bias = false, .bias_init = nn::init::zeros()});
        }) == "[nn.Linear] bias_init has nothing to fill: the layer is built with .bias = false");
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

TEST_CASE("autocast takes an input of any floating dtype, and no other") {
  nn::Linear first({.in = 3, .out = 4}), second({.in = 4, .out = 2});
  nn::initialize(first);
  nn::initialize(second);
  const AutocastGuard autocast(DType::kBF16);
  const Variable y = second(first(Variable(ones({5, 3}))));  // of bf16 into a layer of f32
  CHECK(y.dtype() == DType::kBF16);
  CHECK(thrown<InvalidArgument>([&] {
          first(Variable(zeros({5, 3}, {.dtype = DType::kI64})));
        }) ==
        "[nn.Linear] \"weight\" is f32, the input i64: cast the input, or build the layer with "
        ".dtype");
}

}  // namespace
}  // namespace tessera
