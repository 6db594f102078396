// Layers of images, similarity, transposed convolution and instance norm: that every option arrives at the operation,
// whose values are tested with it; parameters, modes and errors of the layers themselves.
#include "tessera/nn/layers/image.h"

#include <catch2/catch.hpp>

#include "tessera/nn/layers/conv.h"
#include "tessera/nn/layers/conv_transpose.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/instance_norm.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/layers/similarity.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera::testing {
namespace {

void check_same(const Variable& a, const Variable& b) {
  const CloseResult same = all_equal(contiguous(a.tensor()), contiguous(b.tensor()));
  INFO(same.message);
  CHECK(same.ok);
}

// Products of matrices may sum in another order for other extents.
void check_near(const Variable& a, const Variable& b) {
  const CloseResult close = all_close(a.tensor(), b.tensor(), {1e-12, 1e-13});
  INFO(close.message);
  CHECK(close.ok);
}

TEST_CASE("layers of images are the operations with their options") {
  const Variable x = random_input({2, 4, 4, 6}, 1);
  const InterpolateOptions size{
      .size = {3, 5}, .mode = InterpolateMode::kBilinear, .align_corners = true};
  const UnfoldOptions windows{.kernel = {2, 3}, .dilation = {2, 1}, .padding = 1, .stride = {1, 2}};
  check_same(nn::Upsample(size)(x), interpolate(x, size));
  const Variable columns = nn::Unfold(windows)(x);
  check_same(columns, unfold(x, windows));
  check_same(nn::Fold({.output = {4, 6}, .windows = windows})(columns),
             fold(columns, {4, 6}, windows));
  check_same(nn::PixelShuffle({.upscale_factor = 2})(x), pixel_shuffle(x, 2));
  check_same(nn::PixelUnshuffle({.downscale_factor = 2})(x), pixel_unshuffle(x, 2));
  check_same(nn::ChannelShuffle({.groups = 2})(x), channel_shuffle(x, 2));
  check_same(nn::CosineSimilarity({.dim = 2, .eps = 0.1})(x, mul(x, 2)),
             cosine_similarity(x, mul(x, 2), {.dim = 2, .eps = 0.1}));
  check_same(nn::PairwiseDistance({.p = 3, .eps = 0.1, .keep_dim = true})(x, mul(x, 2)),
             pairwise_distance(x, mul(x, 2), {.p = 3, .eps = 0.1, .keep_dim = true}));
  check_same(nn::LocalResponseNorm({.size = 3, .alpha = 2, .beta = 0.5, .k = 3})(x),
             local_response_norm(x, {.size = 3, .alpha = 2, .beta = 0.5, .k = 3}));
  nn::Sequential net;
  net.add<nn::PixelShuffle>({.upscale_factor = 2});
  net.add<nn::PixelUnshuffle>({.downscale_factor = 2});
  check_same(net(x), x);
  CHECK(thrown<InvalidArgument>([] { nn::LocalResponseNorm({.size = 0}); }) ==
        "[nn.LocalResponseNorm] size is 0; it must be at least 1");
}

TEST_CASE("constant padding: left, right, top and bottom, also cropping") {
  const Variable x(Tensor::from_vector<double>({1, 2, 3, 4}, {1, 2, 2}), true);
  const Variable y = nn::ConstantPad2d({.left = 1, .top = 1, .bottom = -1, .value = 9})(x);
  CHECK(y.shape() == Shape{1, 2, 3});
  CHECK(values(y.tensor()) == std::vector<double>{9, 9, 9, 9, 1, 2});
  CHECK(values(nn::ConstantPad1d({.left = -1, .right = 2})(x).tensor()) ==
        std::vector<double>{2, 0, 0, 4, 0, 0});
  nn::ConstantPad2d layer({.left = 1, .right = 2, .top = 1});
  CHECK(check_gradients(layer, x) == "");
}

TEST_CASE("padding by reflection, replication and wrapping around") {
  const Variable x = random_input({2, 3, 4, 5}, 1);
  const nn::Pad2dOptions sides{.left = 1, .right = 2, .top = 3, .bottom = 0};
  const std::vector<Padding> padding = {{3, 0}, {1, 2}};
  check_same(nn::ReflectionPad2d(sides)(x), pad(x, padding, PadMode::kReflect));
  check_same(nn::ReplicationPad2d(sides)(x), pad(x, padding, PadMode::kReplicate));
  check_same(nn::CircularPad2d(sides)(x), pad(x, padding, PadMode::kCircular));
  check_same(nn::ReflectionPad1d({.left = 2})(x), pad(x, {{2, 0}}, PadMode::kReflect));
  check_same(nn::ReplicationPad1d({.right = 2})(x), pad(x, {{0, 2}}, PadMode::kReplicate));
  check_same(nn::CircularPad1d({.left = -1, .right = 2})(x), pad(x, {{-1, 2}}, PadMode::kCircular));
  nn::ReflectionPad2d layer(sides);
  CHECK(layer.type_name() == "ReflectionPad2d");
  CHECK(check_gradients(layer, x) == "");
}

TEST_CASE("transposed convolution: parameters, options, samples or none") {
  nn::ConvTranspose2d layer({.in = 4,
                             .out = 6,
                             .kernel = {2, 3},
                             .stride = {2, 3},
                             .padding = {1, 0},
                             .output_padding = {1, 2},
                             .groups = 2,
                             .dilation = {1, 2},
                             .dtype = DType::kF64});
  nn::initialize(layer);
  CHECK(layer.weight().shape() == Shape{4, 3, 2, 3});
  CHECK(layer.bias().shape() == Shape{6});
  const double bound = 1 / std::sqrt(18.0);
  for (const nn::Parameter& p : layer.parameters()) {
    for (double v : values(p.local().tensor())) CHECK(std::abs(v) <= bound);
  }
  const Variable x = random_input({2, 4, 3, 4}, 2);
  const Variable y = layer(x);
  check_same(y, conv_transpose2d(x, layer.weight().value(), layer.bias().value(),
                                 {.stride = {2, 3},
                                  .padding = {1, 0},
                                  .output_padding = {1, 2},
                                  .groups = 2,
                                  .dilation = {1, 2}}));
  check_near(layer(select(x, 0, 1)), select(y, 0, 1));
  CHECK(layer(random_input({0, 4, 3, 4}, 2)).shape() == y.shape().with(0, 0));
  CHECK(check_gradients(layer, x) == "");
  CHECK(check_16_bits<nn::ConvTranspose2d>({.in = 2, .out = 3, .kernel = 2, .bias = false},
                                           random_input({1, 2, 3, 3}, 1)) == "");
  nn::ConvTranspose1d line({.in = 2,
                            .out = 3,
                            .kernel = 3,
                            .stride = 2,
                            .padding = 1,
                            .output_padding = 1,
                            .bias = false,
                            .dilation = 2,
                            .dtype = DType::kF64});
  nn::initialize(line);
  const Variable row = random_input({2, 2, 5}, 3);
  check_same(line(row),
             conv_transpose1d(row, line.weight().value(), {},
                              {.stride = 2, .padding = 1, .output_padding = 1, .dilation = 2}));
  check_near(line(select(row, 0, 0)), select(line(row), 0, 0));
  CHECK_FALSE(line.has_bias());
  CHECK(thrown<StateError>([&] { line.bias(); }) ==
        "[nn.ConvTranspose1d] no bias: it was built with .bias = false");
}

TEST_CASE("transposed convolution: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([] { nn::ConvTranspose2d({.in = 3, .out = 4, .kernel = 2, .groups = 2}); }) ==
        "[nn.ConvTranspose2d] groups = 2 must divide in = 3 and out = 4, all at least 1");
  CHECK(text([] { nn::ConvTranspose1d({.in = 3, .out = 4}); }) ==
        "[nn.ConvTranspose1d] kernel is 0; it must be at least 1");
  CHECK(text([] { nn::ConvTranspose1d({.in = 3, .out = 4, .kernel = 2, .output_padding = 1}); }) ==
        "[nn.ConvTranspose1d] output_padding 0 x 1 must be below stride 1 x 1 or dilation 1 x 1");
  nn::ConvTranspose1d layer({.in = 3, .out = 4, .kernel = 2});
  nn::initialize(layer);
  CHECK(text([&] {
          layer(Variable(zeros({2, 2, 5})));
        }) ==
        "[nn.ConvTranspose1d] \"weight\" of shape [3, 4, 2] expects an input [samples, 3, length], "
        "or one without samples, got [2, 2, 5]");
  CHECK(text([&] {
          layer(random_input({2, 3, 5}, 1));
        }).find("the input f64") != std::string::npos);
}

TEST_CASE("convolution layers take a sample without a batch") {
  nn::Conv2d plane(
      {.in = 2, .out = 3, .kernel = {2, 3}, .same_padding = true, .dtype = DType::kF64});
  nn::Conv1d line({.in = 2, .out = 3, .kernel = 2, .same_padding = true, .dtype = DType::kF64});
  nn::initialize(plane);
  nn::initialize(line);
  const Variable image = random_input({2, 2, 4, 5}, 1), row = random_input({2, 2, 5}, 2);
  check_near(plane(select(image, 0, 1)), select(plane(image), 0, 1));
  check_near(line(select(row, 0, 1)), select(line(row), 0, 1));
}

TEST_CASE("instance norm: statistics of the input, or running ones in evaluation") {
  nn::InstanceNorm2d plain({.channels = 3, .dtype = DType::kF64});
  nn::initialize(plain);
  CHECK(plain.parameters().empty());
  const Variable x = random_input({2, 3, 4, 5}, 1);
  check_same(plain(x), instance_norm(x, {}, {}));
  plain.eval();
  check_same(plain(x), instance_norm(x, {}, {}));
  check_same(plain(select(x, 0, 1)), select(plain(x), 0, 1));
  CHECK(check_gradients(plain, x) == "");

  nn::InstanceNorm1d tracked({.channels = 3,
                              .eps = 0.1,
                              .momentum = 0.3,
                              .affine = true,
                              .track_running_stats = true,
                              .dtype = DType::kF64});
  nn::initialize(tracked);
  copy_(tracked.weight().local().tensor(), Tensor::from_vector<double>({1, 2, 3}, {3}));
  fill_(tracked.bias().local().tensor(), 0.5);
  const Variable row = random_input({2, 3, 7}, 2);
  const Tensor mean = zeros({3}, {.dtype = DType::kF64}), var = ones({3}, {.dtype = DType::kF64});
  const Variable expected =
      instance_norm(row, tracked.weight().value(), tracked.bias().value(),
                    {.running_mean = mean, .running_var = var, .momentum = 0.3, .eps = 0.1});
  check_same(tracked(row), expected);
  CHECK(values(tracked.running_mean().tensor()) == values(mean));
  CHECK(values(tracked.running_var().tensor()) == values(var));
  tracked.eval();
  const Variable fixed = tracked(row);
  CHECK(values(tracked.running_mean().tensor()) == values(mean));
  const double first = values(row.tensor())[7];  // channel 1 of sample 0
  CHECK(values(fixed.tensor())[7] ==
        Approx((first - values(mean)[1]) / std::sqrt(values(var)[1] + 0.1) * 2 + 0.5));
  std::vector<std::string> names;
  for (const auto& [name, buffer] : tracked.named_buffers()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"});
  CHECK(check_16_bits<nn::InstanceNorm1d>({.channels = 3}, row) == "");
}

TEST_CASE("instance norm: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([] { nn::InstanceNorm1d({.channels = 0}); }) ==
        "[nn.InstanceNorm1d] channels is 0; it must be at least 1");
  CHECK(text([] { nn::InstanceNorm1d({.channels = 2, .momentum = 2}); }) ==
        "[nn.InstanceNorm1d] momentum is 2; it must lie in [0, 1]");
  nn::InstanceNorm2d layer({.channels = 3});
  CHECK(text([&] {
          layer(Variable(zeros({2, 4, 5, 5})));
        }) ==
        "[nn.InstanceNorm2d] the root module: expected an input [samples, 3, height, width] or [3, "
        "height, width], got [2, 4, 5, 5]");
  CHECK(thrown<StateError>([&] { layer.weight(); }) ==
        "[nn.InstanceNorm2d] no weight: it was built without .affine = true");
  CHECK(thrown<StateError>([&] { layer.bias(); }) ==
        "[nn.InstanceNorm2d] no bias: it was built without .affine = true");
  CHECK(thrown<StateError>([&] { layer.running_var(); }) ==
        "[nn.InstanceNorm2d] no running statistics: it was built without .track_running_stats = "
        "true");
}

TEST_CASE("forms of dropout as layers: in training only, by the layer's name") {
  const Variable x = random_input({6, 5, 2}, 4);
  nn::Dropout2d channels({.p = 0.4});
  nn::AlphaDropout alpha({.p = 0.4});
  const auto run = [&](auto& layer) {
    const random::StepScope step({.seed = 1, .step = 2});
    return layer(x);
  };
  {
    const random::StepScope step({.seed = 1, .step = 2});
    check_same(dropout2d(x, {.p = 0.4, .layer = "Dropout2d"}), run(channels));
  }
  {
    const random::StepScope step({.seed = 1, .step = 2});
    check_same(alpha_dropout(x, {.p = 0.4, .layer = "AlphaDropout"}), run(alpha));
  }
  channels.eval();
  alpha.eval();
  check_same(run(channels), x);
  check_same(run(alpha), x);
  CHECK(thrown<InvalidArgument>([] { nn::Dropout2d({.p = 2}); }) ==
        "[nn.Dropout2d] p is 2; it must lie in [0, 1]");
  CHECK(thrown<InvalidArgument>([] { nn::AlphaDropout({.p = -1}); }) ==
        "[nn.AlphaDropout] p is -1; it must lie in [0, 1]");
}

}  // namespace
}  // namespace tessera::testing
