// BatchNorm on one rank against plain loops: training, evaluation, running statistics.

#include "tessera/nn/layers/batch_norm.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/recompute.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

struct Moments {
  std::vector<double> mean, square;  // square: the sum of squared differences
  double count = 0;
};

// Of each channel of x [N, C, ...].
Moments moments(const Variable& x) {
  const std::vector<double> in = values(x.tensor());
  const std::size_t channels = std::size_t(x.dim(1)),
                    spatial = in.size() / std::size_t(x.dim(0)) / channels;
  Moments out{std::vector<double>(channels), std::vector<double>(channels),
              double(in.size() / channels)};
  for (std::size_t i = 0; i < in.size(); ++i) out.mean[i / spatial % channels] += in[i] / out.count;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t c = i / spatial % channels;
    out.square[c] += (in[i] - out.mean[c]) * (in[i] - out.mean[c]);
  }
  return out;
}

void check_close(const Tensor& actual, const std::vector<double>& expected) {
  const std::vector<double> out = values(actual);
  REQUIRE(out.size() == expected.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    CHECK(out[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-13));
}

// (x - mean) / sqrt(variance + eps) * weight + bias.
template <class L>
std::vector<double> normalised(L& layer, const Variable& x, const std::vector<double>& mean,
                               const std::vector<double>& variance, double eps) {
  std::vector<double> out = values(x.tensor());
  const std::vector<double> weight = values(layer.weight().local().tensor()),
                            bias = values(layer.bias().local().tensor());
  const std::size_t channels = mean.size(), spatial = out.size() / std::size_t(x.dim(0)) / channels;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t c = i / spatial % channels;
    out[i] = (out[i] - mean[c]) / std::sqrt(variance[c] + eps) * weight[c] + bias[c];
  }
  return out;
}

template <class L>
void check_training_and_evaluation(const std::vector<Shape>& shapes) {
  const double eps = 0.01, momentum = 0.3;
  L layer({.channels = 3, .eps = eps, .momentum = momentum, .dtype = DType::kF64});
  nn::initialize(layer);
  copy_(layer.weight().local().tensor(), Tensor::from_vector<double>({0.5, -2, 1.5}, {3}));
  copy_(layer.bias().local().tensor(), Tensor::from_vector<double>({0.25, 1, -1}, {3}));
  std::vector<double> mean(3, 0), variance(3, 1);
  int batches = 0;
  for (const Shape& shape : shapes) {
    const Variable x = add(random_input(shape, 1), 3);
    const Moments m = moments(x);
    std::vector<double> batch_variance(3);
    for (std::size_t c = 0; c < 3; ++c) {
      batch_variance[c] = m.square[c] / m.count;
      mean[c] = 0.7 * mean[c] + 0.3 * m.mean[c];
      variance[c] = 0.7 * variance[c] + 0.3 * m.square[c] / (m.count - 1);
    }
    check_close(layer(x).tensor(), normalised(layer, x, m.mean, batch_variance, eps));
    check_close(layer.running_mean().tensor(), mean);
    check_close(layer.running_var().tensor(), variance);
    CHECK(layer.num_batches_tracked().tensor().template item<std::int64_t>() == ++batches);
  }
  layer.eval();
  for (const Shape& shape : shapes) {
    const Variable x = random_input(shape, 2);
    check_close(layer(x).tensor(), normalised(layer, x, mean, variance, eps));
    CHECK(testing::check_gradients(layer, x) == "");
  }
  CHECK(layer(random_input(shapes[0].with(0, 0), 1)).shape() == shapes[0].with(0, 0));
  check_close(layer.running_mean().tensor(), mean);
  CHECK(layer.num_batches_tracked().tensor().template item<std::int64_t>() == batches);
  layer.train();
  for (const Shape& shape : shapes)
    CHECK(testing::check_gradients(layer, random_input(shape, 3)) == "");
  layer.reset_running_stats();
  check_close(layer.running_mean().tensor(), {0, 0, 0});
  check_close(layer.running_var().tensor(), {1, 1, 1});
  CHECK(layer.num_batches_tracked().tensor().template item<std::int64_t>() == 0);
}

TEST_CASE("batch norm normalises with the batch, then with what it ran through") {
  check_training_and_evaluation<nn::BatchNorm1d>({{4, 3}, {2, 3, 5}, {2, 3}});
  check_training_and_evaluation<nn::BatchNorm2d>({{2, 3, 2, 3}, {1, 3, 5, 1}});
}

TEST_CASE("batch norm starts as ones and zeros, under PyTorch's names") {
  nn::BatchNorm1d layer({.channels = 2});
  nn::initialize(layer);
  CHECK(values(layer.weight().local().tensor()) == std::vector<double>{1, 1});
  CHECK(values(layer.bias().local().tensor()) == std::vector<double>{0, 0});
  const std::vector<nn::NamedBuffer> buffers = layer.named_buffers();
  REQUIRE(buffers.size() == 3);
  CHECK(buffers[0].name == "running_mean");
  CHECK(buffers[1].name == "running_var");
  CHECK(buffers[2].name == "num_batches_tracked");
  CHECK(values(buffers[0].buffer.tensor()) == std::vector<double>{0, 0});
  CHECK(values(buffers[1].buffer.tensor()) == std::vector<double>{1, 1});
  CHECK(buffers[2].buffer.tensor().item<std::int64_t>() == 0);
  CHECK(buffers[2].buffer.shape() == Shape{});
}

template <class L>
void check_without_bias(const Shape& shape) {
  L layer({.channels = 3, .bias = false, .dtype = DType::kF64}),
      zero({.channels = 3, .dtype = DType::kF64});
  CHECK(layer.has_weight());
  CHECK_FALSE(layer.has_bias());
  REQUIRE(layer.named_parameters().size() == 1);
  CHECK(layer.named_parameters()[0].name == "weight");
  for (L* each : {&layer, &zero}) {
    nn::initialize(*each);
    copy_(each->weight().local().tensor(), Tensor::from_vector<double>({0.5, -2, 1.5}, {3}));
  }
  for (const bool training : {true, false}) {
    layer.train(training);
    zero.train(training);
    const Variable x = random_input(shape, 1);
    check_close(layer(x).tensor(), values(zero(x).tensor()));
  }
  for (const bool training : {true, false}) {
    layer.train(training);
    CHECK(testing::check_gradients(layer, random_input(shape, 2)) == "");
  }
  CHECK_FALSE(L({.channels = 3, .affine = false, .bias = true}).has_bias());
}

TEST_CASE("batch norm without a bias is one whose bias is zero") {
  check_without_bias<nn::BatchNorm1d>({4, 3});
  check_without_bias<nn::BatchNorm2d>({2, 3, 2, 3});
}

TEST_CASE("batch norm has local batches until its statistics are set otherwise") {
  for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()}) {
    nn::BatchNorm1d layer({.channels = 3, .momentum = momentum, .dtype = DType::kF64});
    nn::initialize(layer);
    const nn::StateDict loaded = nn::state_dict(layer).clone();
    const auto train = [&] {
      layer(random_input({4, 3}, 1));
      CHECK(layer.has_local_batches());
    };
    CHECK_FALSE(layer.has_local_batches());
    train();
    train();
    layer.eval();
    layer(random_input({4, 3}, 1));
    nn::state_dict(layer).clone();
    layer.train();
    CHECK(layer.has_local_batches());
    CHECK_THROWS_AS(nn::load_state_dict(layer, nn::StateDict()), InvalidArgument);
    CHECK(layer.has_local_batches());  // nothing was loaded
    nn::load_state_dict(layer, loaded);
    CHECK_FALSE(layer.has_local_batches());
    train();
    layer.reset_running_stats();
    CHECK_FALSE(layer.has_local_batches());
    train();
    nn::initialize(layer);
    CHECK_FALSE(layer.has_local_batches());
    train();
    layer.to(DType::kF32);
    CHECK(layer.has_local_batches());  // the same statistics
  }
}

TEST_CASE("without a momentum the running statistics are plain averages") {
  nn::BatchNorm1d layer({.channels = 2, .momentum = std::nullopt, .dtype = DType::kF64});
  nn::initialize(layer);
  std::vector<double> mean(2, 0), variance(2, 0);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const Variable x = random_input({5, 2}, seed);
    const Moments m = moments(x);
    layer(x);
    for (std::size_t c = 0; c < 2; ++c) {
      mean[c] += m.mean[c] / 3;
      variance[c] += m.square[c] / (m.count - 1) / 3;
    }
  }
  check_close(layer.running_mean().tensor(), mean);
  check_close(layer.running_var().tensor(), variance);
  CHECK(layer.num_batches_tracked().tensor().item<std::int64_t>() == 3);
}

TEST_CASE("without running statistics evaluation takes the batch's") {
  nn::BatchNorm1d layer(
      {.channels = 2, .affine = false, .track_running_stats = false, .dtype = DType::kF64});
  nn::initialize(layer);
  CHECK(layer.parameters().empty());
  CHECK(layer.named_buffers().empty());
  const Variable x = random_input({5, 2}, 1);
  const std::vector<double> trained = values(layer(x).tensor());
  layer.eval();
  CHECK(values(layer(x).tensor()) == trained);
  CHECK(testing::check_gradients(layer, x) == "");
}

TEST_CASE("a recomputed batch norm counts its batch once") {
  nn::BatchNorm1d plain({.channels = 2, .dtype = DType::kF64});
  nn::BatchNorm1d again({.channels = 2, .dtype = DType::kF64});
  nn::BatchNorm1d cumulative({.channels = 2, .momentum = std::nullopt, .dtype = DType::kF64});
  for (nn::BatchNorm1d* layer : {&plain, &again, &cumulative}) nn::initialize(*layer);
  const Variable x = random_input({5, 2}, 1, true);
  plain(x);
  for (nn::BatchNorm1d* layer : {&again, &cumulative}) {
    backward(sum(square(recompute([&](const Variable& v) { return (*layer)(v); }, x))));
    CHECK(layer->num_batches_tracked().tensor().item<std::int64_t>() == 1);
  }
  CHECK(values(again.running_mean().tensor()) == values(plain.running_mean().tensor()));
  CHECK(values(again.running_var().tensor()) == values(plain.running_var().tensor()));
}

TEST_CASE("training on between an evaluation and its backward does not change the gradient") {
  nn::BatchNorm1d layer({.channels = 2, .dtype = DType::kF64});
  nn::initialize(layer);
  layer.eval();
  const Variable x = random_input({5, 2}, 1);
  const Variable y = sum(square(layer(x)));
  backward(sum(square(layer(x))));
  const std::vector<double> expected = values(layer.weight().grad());
  layer.weight().zero_grad();
  layer.train();
  layer(random_input({5, 2}, 2));
  backward(y);
  CHECK(values(layer.weight().grad()) == expected);
}

TEST_CASE("batch norm of 16 bits is computed in f32, with running statistics of f32") {
  CHECK(testing::check_16_bits<nn::BatchNorm1d>({.channels = 3}, random_input({4, 3, 2}, 1)) == "");
  CHECK(testing::check_16_bits<nn::BatchNorm2d>({.channels = 3}, random_input({4, 3, 2, 2}, 1)) ==
        "");
  nn::BatchNorm1d half({.channels = 3, .dtype = DType::kBF16});
  nn::initialize(half);
  CHECK(half.running_var().dtype() == DType::kF32);
  nn::BatchNorm1d wide({.channels = 3});
  nn::initialize(wide);
  const Variable x(cast(random_input({4, 3}, 1).tensor(), DType::kBF16));
  CHECK(wide(x).dtype() == DType::kBF16);
  {
    const AutocastGuard autocast(DType::kBF16);
    CHECK(wide(x).dtype() == DType::kF32);
  }
  half.bfloat16();  // buffers too
  CHECK(half.running_var().dtype() == DType::kBF16);
  CHECK(half(x).dtype() == DType::kBF16);
  nn::BatchNorm1d cumulative({.channels = 3, .momentum = std::nullopt});
  nn::initialize(cumulative);
  cumulative.bfloat16();
  CHECK(cumulative(x).dtype() == DType::kBF16);
}

TEST_CASE("batch norm over a mesh of one rank is batch norm") {
  nn::BatchNorm2d plain({.channels = 3, .dtype = DType::kF64});
  nn::BatchNorm2d synced({.channels = 3, .mesh = nn::local_mesh(), .dtype = DType::kF64});
  nn::initialize(plain);
  nn::initialize(synced);
  const Variable x = random_input({2, 3, 2, 2}, 1);
  CHECK(testing::all_close(synced(x).tensor(), plain(x).tensor(), {1e-13, 1e-13}).ok);
  CHECK(testing::all_close(synced.running_var().tensor(), plain.running_var().tensor(),
                           {1e-13, 1e-13})
            .ok);
  CHECK(testing::check_gradients(synced, x) == "");
  // One element, and none: no variance, and nothing that is not a number.
  nn::BatchNorm1d flat({.channels = 2, .mesh = nn::local_mesh(), .dtype = DType::kF64});
  nn::initialize(flat);
  CHECK(values(flat(random_input({1, 2}, 1)).tensor()) == std::vector<double>{0, 0});
  CHECK(values(flat.running_var().tensor()) == std::vector<double>{1, 1});
  const std::vector<double> mean = values(flat.running_mean().tensor());
  CHECK(flat(random_input({0, 2}, 1)).shape() == Shape{0, 2});
  CHECK(values(flat.running_mean().tensor()) == std::vector<double>{0.9 * mean[0], 0.9 * mean[1]});
  flat.synchronize(nullptr);
  CHECK(thrown<InvalidArgument>([&] {
          flat(random_input({1, 2}, 1));
        }) ==
        "[batch_norm] training needs at least 2 elements in a channel, shape [1, 2] has 1; give "
        "more samples");
  CHECK(flat.num_batches_tracked().tensor().item<std::int64_t>() == 2);
}

TEST_CASE("batch norm over a mesh in autocast") {
  nn::BatchNorm1d layer({.channels = 3, .mesh = nn::local_mesh(), .dtype = DType::kBF16});
  nn::initialize(layer);
  const Variable x(cast(random_input({4, 3}, 1).tensor(), DType::kBF16), true);
  Variable y;
  {
    const AutocastGuard autocast(DType::kBF16);
    y = layer(x);
  }
  CHECK(y.dtype() == DType::kF32);
  backward(sum(square(y)));
  CHECK(x.grad().dtype() == DType::kBF16);
  CHECK(layer.weight().grad().dtype() == DType::kBF16);
}

TEST_CASE("batch norm is planned on the null device") {
  for (const auto& mesh : {std::shared_ptr<const nn::Mesh>(), nn::local_mesh()}) {
    for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()}) {
      nn::BatchNorm2d layer({.channels = 3, .momentum = momentum, .mesh = mesh});
      nn::initialize(layer, {.device = kNull});
      const Variable x(zeros({2, 3, 4, 4}, {.device = kNull}), true);
      const Variable y = layer(x);
      CHECK(y.device() == kNull);
      backward(sum(y));
      CHECK(x.grad().shape() == x.shape());
    }
  }
}

TEST_CASE("batch norm names what does not fit") {
  CHECK(thrown<InvalidArgument>([] { nn::BatchNorm1d({.channels = 0}); }) ==
        "[nn.BatchNorm1d] channels is 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([] { nn::BatchNorm2d({.channels = 2, .eps = -1}); }) ==
        "[nn.BatchNorm2d] eps is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([] { nn::BatchNorm2d({.channels = 2, .momentum = 1.5}); }) ==
        "[nn.BatchNorm2d] momentum is 1.5; it must lie in [0, 1], or be nullopt for the plain "
        "average");
  CHECK(thrown<InvalidArgument>([] {
          nn::BatchNorm1d({.channels = 2, .mesh = nn::local_mesh(), .axis = "model"});
        }) == "[nn.local_mesh] unknown axis \"model\"; there is \"data\"");
  const auto two_axes =
      std::make_shared<testing::FakeMesh>(std::vector<std::string>{"data", "model"}, 2);
  CHECK(thrown<InvalidArgument>([&] { nn::BatchNorm1d({.channels = 2, .mesh = two_axes}); }) ==
        "[nn.BatchNorm1d] the mesh has the axes data, model; say over which to synchronise");

  nn::BatchNorm1d layer({.channels = 2, .track_running_stats = false});
  nn::BatchNorm2d plain({.channels = 2, .affine = false});
  CHECK(thrown<StateError>([&] {
          layer(Variable(zeros({3, 2})));
        }).find("initialize") != std::string::npos);
  nn::initialize(layer);
  nn::initialize(plain);
  CHECK(thrown<InvalidArgument>([&] {
          layer(Variable(zeros({3, 4})));
        }) ==
        "[nn.BatchNorm1d] the root module: expected an input [samples, 2] or [samples, 2, length], "
        "got [3, 4]");
  CHECK(thrown<InvalidArgument>([&] {
          plain(Variable(zeros({3, 2})));
        }) ==
        "[nn.BatchNorm2d] the root module: expected an input [samples, 2, height, width], got [3, "
        "2]");
  CHECK(thrown<InvalidArgument>([&] {
          layer(random_input({3, 2}, 1));
        }).find("the input f64") != std::string::npos);
  CHECK(thrown<StateError>([&] { layer.running_mean(); }) ==
        "[nn.BatchNorm1d] no running statistics: it was built with .track_running_stats = false");
  CHECK(thrown<StateError>([&] { plain.weight(); }) ==
        "[nn.BatchNorm2d] no weight: it was built with .affine = false");
  CHECK(thrown<StateError>([&] { plain.bias(); }) ==
        "[nn.BatchNorm2d] no bias: it was built with .affine = false or .bias = false");
}

}  // namespace
}  // namespace tessera
