// Conv1d and Conv2d against plain loops; what they start with and refuse.

#include "tessera/nn/layers/conv.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

// An input of [N, C, H, W] with zeros around; `before` on each side, and what x says beyond.
struct Padded {
  const std::vector<double>& x;
  Shape shape;
  Size2d before;
  double at(std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j) const {
    i -= before.height;
    j -= before.width;
    if (i < 0 || j < 0 || i >= shape[2] || j >= shape[3]) return 0;
    return x[std::size_t(((n * shape[1] + c) * shape[2] + i) * shape[3] + j)];
  }
};

// The formula of ops/conv.h; y's shape tells how many places there are.
std::vector<double> convolved(const Padded& in, nn::Parameter weight, const Shape& y,
                              const nn::Conv2dOptions& o) {
  const std::vector<double> w = values(weight.local().tensor());
  const std::int64_t per_group = o.in / o.groups;
  std::vector<double> out;
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t c = 0; c < y[1]; ++c) {
      for (std::int64_t i = 0; i < y[2] * y[3]; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < per_group * o.kernel.height * o.kernel.width; ++k) {
          const std::int64_t b = k % o.kernel.width, a = k / o.kernel.width % o.kernel.height,
                             from = k / (o.kernel.width * o.kernel.height);
          sum += w[std::size_t(c * per_group * o.kernel.height * o.kernel.width + k)] *
                 in.at(n, c / (o.out / o.groups) * per_group + from,
                       i / y[3] * o.stride.height + a * o.dilation.height,
                       i % y[3] * o.stride.width + b * o.dilation.width);
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

void check_conv2d(nn::Conv2dOptions options, const Shape& x_shape, Size2d before,
                  const Shape& y_shape) {
  options.dtype = DType::kF64;
  nn::Conv2d layer(options);
  nn::initialize(layer);
  const Variable x = random_input(x_shape, 1);
  const Variable y = layer(x);
  REQUIRE(y.shape() == y_shape);
  const std::vector<double> in = values(x.tensor()), out = values(y.tensor());
  std::vector<double> expected = convolved({in, x_shape, before}, layer.weight(), y_shape, options);
  const std::vector<double> bias = options.bias
                                       ? values(layer.bias().local().tensor())
                                       : std::vector<double>(std::size_t(options.out), 0.0);
  const std::int64_t places = y_shape[2] * y_shape[3];
  for (std::size_t i = 0; i < out.size(); ++i) {
    expected[i] += bias[i / std::size_t(places) % std::size_t(options.out)];
    CHECK(out[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-13));
  }
}

TEST_CASE("conv2d is the sum over channels and kernel") {
  check_conv2d({.in = 3, .out = 5, .kernel = {3, 2}}, {2, 3, 5, 4}, 0, {2, 5, 3, 3});
  check_conv2d({.in = 2, .out = 4, .kernel = 3, .stride = {2, 1}, .padding = {1, 2}}, {1, 2, 7, 5},
               {1, 2}, {1, 4, 4, 7});
  check_conv2d(
      {.in = 4, .out = 6, .kernel = {2, 3}, .dilation = {2, 1}, .groups = 2, .bias = false},
      {3, 4, 5, 6}, 0, {3, 6, 3, 4});
  check_conv2d({.in = 1, .out = 1, .kernel = 1}, {0, 1, 3, 3}, 0, {0, 1, 3, 3});
}

TEST_CASE("same_padding keeps the extents; of an odd number of zeros one more stands at the end") {
  check_conv2d({.in = 2, .out = 3, .kernel = {3, 2}, .same_padding = true}, {2, 2, 5, 4}, {1, 0},
               {2, 3, 5, 4});
  check_conv2d({.in = 1, .out = 1, .kernel = {4, 5}, .same_padding = true, .dilation = {1, 2}},
               {1, 1, 6, 7}, {1, 4}, {1, 1, 6, 7});
}

TEST_CASE("conv1d is conv2d over a height of 1") {
  for (bool same : {false, true}) {
    nn::Conv1d layer({.in = 4,
                      .out = 6,
                      .kernel = 4,
                      .stride = same ? 1 : 2,
                      .padding = same ? 0 : 1,
                      .same_padding = same,
                      .groups = 2,
                      .dtype = DType::kF64});
    nn::initialize(layer);
    CHECK(layer.weight().shape() == Shape{6, 2, 4});
    const Variable x = random_input({2, 4, 9}, 2);
    const Variable y = layer(x);
    const std::int64_t length = same ? 9 : 4;
    REQUIRE(y.shape() == Shape{2, 6, length});
    const std::vector<double> in = values(x.tensor()), out = values(y.tensor()),
                              bias = values(layer.bias().local().tensor());
    const std::vector<double> expected =
        convolved({in, {2, 4, 1, 9}, {0, 1}}, layer.weight(), {2, 6, 1, length},
                  {.in = 4, .out = 6, .kernel = {1, 4}, .stride = {1, same ? 1 : 2}, .groups = 2});
    for (std::size_t i = 0; i < out.size(); ++i)
      CHECK(out[i] == Approx(expected[i] + bias[i / std::size_t(length) % 6]).margin(1e-13));
    CHECK(testing::check_gradients(layer, x) == "");
  }
}

TEST_CASE("padding_mode: the convolution of the padded input") {
  for (PadMode mode :
       {PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular}) {
    INFO("mode " << static_cast<int>(mode));
    nn::Conv2d both({.in = 2,
                     .out = 3,
                     .kernel = 3,
                     .stride = {1, 2},
                     .padding = {2, 1},
                     .padding_mode = mode,
                     .dtype = DType::kF64});
    nn::Conv2d same({.in = 2,
                     .out = 3,
                     .kernel = {4, 3},
                     .same_padding = true,
                     .padding_mode = mode,
                     .dtype = DType::kF64});
    nn::Conv1d line({.in = 4,
                     .out = 3,
                     .kernel = 2,
                     .same_padding = true,
                     .padding_mode = mode,
                     .dtype = DType::kF64});
    nn::Conv1d wide(
        {.in = 4, .out = 3, .kernel = 2, .padding = 2, .padding_mode = mode, .dtype = DType::kF64});
    const Variable x = random_input({2, 2, 4, 5}, 2), row = random_input({2, 4, 5}, 3);
    const auto check = [&](auto& layer, const Variable& in, const std::vector<Padding>& padding,
                           const auto& convolve) {
      nn::initialize(layer);
      const Variable y = layer(in);
      const Variable expected =
          convolve(pad(in, padding, mode), layer.weight().value(), layer.bias().value());
      CHECK(testing::all_close(y.tensor(), expected.tensor(), {1e-13, 1e-14}).ok);
      CHECK(testing::check_gradients(layer, in) == "");
    };
    const auto two = [](Size2d stride) {
      return [=](const Variable& in, const Variable& w, const Variable& b) {
        return conv2d(in, w, b, {.stride = stride});
      };
    };
    const auto one = [](const Variable& in, const Variable& w, const Variable& b) {
      return conv1d(in, w, b);
    };
    check(both, x, {{2, 2}, {1, 1}}, two({1, 2}));
    check(same, x, {{1, 2}, {1, 1}}, two(1));
    check(line, row, {{0, 1}}, one);
    check(wide, row, {{2, 2}}, one);
  }
}

TEST_CASE("convolutions: derivatives and 16 bits") {
  nn::Conv2d layer({.in = 2,
                    .out = 4,
                    .kernel = {2, 3},
                    .stride = {1, 2},
                    .padding = 1,
                    .groups = 2,
                    .dtype = DType::kF64});
  nn::Conv2d same(
      {.in = 2, .out = 1, .kernel = 2, .same_padding = true, .bias = false, .dtype = DType::kF64});
  nn::initialize(layer);
  nn::initialize(same);
  CHECK(testing::check_gradients(layer, random_input({2, 2, 3, 5}, 3)) == "");
  CHECK(testing::check_gradients(layer, random_input({0, 2, 3, 5}, 3)) == "");
  CHECK(testing::check_gradients(same, random_input({1, 2, 3, 3}, 3)) == "");
  // cuDNN rounds the sums, to which the bias is added: half a bf16 unit of numbers up to 2.
  const double atol = default_device().is_cuda() ? 4e-3 : 1e-5;
  CHECK(testing::check_16_bits<nn::Conv2d>({.in = 3, .out = 2, .kernel = 3},
                                           random_input({2, 3, 5, 5}, 4), atol) == "");
  CHECK(testing::check_16_bits<nn::Conv1d>({.in = 3, .out = 2, .kernel = 3},
                                           random_input({2, 3, 5}, 4), atol) == "");
  nn::Conv2d wide({.in = 3, .out = 2, .kernel = 3});
  nn::initialize(wide);
  const AutocastGuard autocast(DType::kBF16);
  CHECK(wide(Variable(ones({1, 3, 4, 4}, {.dtype = DType::kBF16}))).dtype() == DType::kBF16);
}

TEST_CASE("convolutions start uniform in +-1/sqrt(fan_in)") {
  nn::Conv2d layer({.in = 8, .out = 90, .kernel = {2, 4}, .groups = 2});  // fan_in 32
  nn::initialize(layer);
  double largest = 0;
  for (const nn::Parameter& p : layer.parameters()) {
    for (double v : values(p.local().tensor())) largest = std::max(largest, std::abs(v));
  }
  CHECK(largest <= 1 / std::sqrt(32.0));
  CHECK(largest > 0.99 / std::sqrt(32.0));
}

TEST_CASE("convolutions start with the values that their options name") {
  nn::Conv1d one({.in = 2,
                  .out = 3,
                  .kernel = 2,
                  .weight_init = nn::init::constant(2),
                  .bias_init = nn::init::constant(3)});
  nn::Conv2d two({.in = 2,
                  .out = 3,
                  .kernel = {1, 2},
                  .weight_init = nn::init::constant(2),
                  .bias_init = nn::init::constant(3)});
  nn::initialize(one);
  nn::initialize(two);
  CHECK(values(one.weight().local().tensor()) == std::vector<double>(12, 2.0));
  CHECK(values(two.weight().local().tensor()) == std::vector<double>(12, 2.0));
  CHECK(values(one.bias().local().tensor()) == std::vector<double>(3, 3.0));
  CHECK(values(two.bias().local().tensor()) == std::vector<double>(3, 3.0));
  CHECK(thrown<InvalidArgument>([] {
          nn::Conv1d(
              {.in = 1, .out = 1, .kernel = 1, .bias = false, .bias_init = nn::init::zeros()});
        }) == "[nn.Conv1d] bias_init has nothing to fill: the layer is built with .bias = false");
}

TEST_CASE("convolutions name what does not fit") {
  const auto refuses = [](const nn::Conv2dOptions& options) {
    return thrown<InvalidArgument>([&] { nn::Conv2d layer(options); });
  };
  CHECK(refuses({.in = 3, .out = 4, .kernel = 2, .groups = 2}) ==
        "[nn.Conv2d] groups = 2 must divide in = 3 and out = 4, all at least 1");
  CHECK(refuses({.in = 0, .out = 4, .kernel = 2}) ==
        "[nn.Conv2d] groups = 1 must divide in = 0 and out = 4, all at least 1");
  CHECK(refuses({.in = 3, .out = 4}) == "[nn.Conv2d] kernel is 0; it must be at least 1");
  CHECK(refuses({.in = 3, .out = 4, .kernel = 2, .stride = {1, 0}}) ==
        "[nn.Conv2d] stride is 0; it must be at least 1");
  CHECK(refuses({.in = 3, .out = 4, .kernel = 2, .padding = -1}) ==
        "[nn.Conv2d] padding is -1; it must be at least 0");
  CHECK(refuses({.in = 3, .out = 4, .kernel = 2, .dilation = 0}) ==
        "[nn.Conv2d] dilation is 0; it must be at least 1");
  CHECK(refuses({.in = 3, .out = 4, .kernel = 2, .stride = 2, .same_padding = true}) ==
        "[nn.Conv2d] same_padding needs a stride of 1, got 2 x 2");
  CHECK(refuses({.in = 3, .out = 4, .kernel = 2, .padding = 1, .same_padding = true}) ==
        "[nn.Conv2d] same_padding stands instead of padding = 1 x 1; give one of them");
  CHECK(thrown<InvalidArgument>([] { nn::Conv1d({.in = 3, .out = 4}); }) ==
        "[nn.Conv1d] kernel is 0; it must be at least 1");

  nn::Conv2d layer({.in = 4, .out = 2, .kernel = 3, .groups = 2, .bias = false});
  nn::Conv1d flat({.in = 4, .out = 2, .kernel = 3, .bias = false});
  nn::initialize(layer, {.prefix = "conv."});
  nn::initialize(flat);
  CHECK(thrown<InvalidArgument>([&] {
          layer(Variable(zeros({2, 2, 5, 5})));
        }) ==
        "[nn.Conv2d] \"conv.weight\" of shape [2, 2, 3, 3] expects an input [samples, 4, height, "
        "width], or one without samples, got [2, 2, 5, 5]");
  CHECK(thrown<InvalidArgument>([&] {
          flat(Variable(zeros({3, 5})));
        }) ==
        "[nn.Conv1d] \"weight\" of shape [2, 4, 3] expects an input [samples, 4, length], or "
        "one without samples, got [3, 5]");
  CHECK(thrown<InvalidArgument>([&] {
          flat(random_input({1, 4, 5}, 1));
        }).find("the input f64") != std::string::npos);
  CHECK(thrown<StateError>([&] { layer.bias(); }) ==
        "[nn.Conv2d] no bias: it was built with .bias = false");
  CHECK(thrown<StateError>([&] { flat.bias(); }) ==
        "[nn.Conv1d] no bias: it was built with .bias = false");
}

}  // namespace
}  // namespace tessera
