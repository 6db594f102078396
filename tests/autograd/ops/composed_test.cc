// Operations that are made of others: derivatives against differences, over odd and empty shapes; values as those of
// tensors; forms of dropout.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

TEST_CASE("activations: derivatives") {
  const auto each = [](const auto& x) {
    return stack(std::vector{hardtanh(x), hardtanh(x, -0.3, 0.45), relu6(x), leaky_relu(x),
                             leaky_relu(x, -0.5), elu(x), elu(x, 0.3), selu(x), celu(x),
                             celu(x, 0.4), mish(x), logsigmoid(x), hardsigmoid(x), hardswish(x),
                             softsign(x), tanhshrink(x), hardshrink(x, 0.2), softshrink(x, 0.2),
                             threshold(x, 0.1, 3)});
  };
  for (const Shape& shape : {Shape{}, Shape{3, 5}, Shape{0}}) {
    INFO(shape.str());
    check_both([&](const auto& in) { return each(in[0]); }, {leaf(shape, -4, 7)});
  }
  check_both([](const auto& in) { return prelu(in[0], in[1]); }, {leaf({2, 3, 4}), leaf({3})});
  check_both([](const auto& in) { return prelu(in[0], in[1]); }, {leaf({5}), leaf({1})});
  for (int dim : {0, 1, -1}) {
    check_both([=](const auto& in) { return glu(in[0], dim); }, {leaf({2, 4, 6})});
    check_both([=](const auto& in) { return softmin(in[0], dim); }, {leaf({2, 4, 3})});
  }
}

TEST_CASE("similarity: derivatives, also where a length is 0") {
  for (int dim : {0, -1}) {
    check_both([=](const auto& in) { return normalize(in[0], {.dim = dim}); }, {leaf({3, 4})});
    check_both([=](const auto& in) { return normalize(in[0], {.p = 3, .dim = dim, .eps = 5}); },
               {leaf({3, 4})});
    check_both([=](const auto& in) { return cosine_similarity(in[0], in[1], {.dim = dim}); },
               {leaf({3, 4}), leaf({4}, -1, 1, 0.6)});
  }
  check_both([](const auto& in) { return pairwise_distance(in[0], in[1]); },
             {leaf({3, 4}), leaf({1, 4}, -1, 1, 0.6)});
  check_both(
      [](const auto& in) {
        return pairwise_distance(in[0], in[1], {.p = 1.5, .eps = 0.1, .keep_dim = true});
      },
      {leaf({2, 3}), leaf({2, 3}, 1, 2)});
  Variable zero(zeros({1, 2}, {.dtype = DType::kF64}), true);
  const Variable one = leaf({1, 2}, 1, 2);
  backward(sum(normalize(zero, {.eps = 0.5})));
  CHECK(values(zero.grad()) == std::vector<double>{2, 2});
  zero.set_grad({});
  backward(sum(cosine_similarity(zero, one)));
  for (double g : values(zero.grad())) CHECK(std::isfinite(g));
}

TEST_CASE("images: derivatives") {
  const UnfoldOptions windows{.kernel = {2, 3}, .dilation = {2, 1}, .padding = 1, .stride = {1, 2}};
  check_both([&](const auto& in) { return unfold(in[0], windows); }, {leaf({2, 2, 4, 5})});
  check_both([&](const auto& in) { return unfold(in[0], windows); }, {leaf({1, 4, 5})});
  check_both([&](const auto& in) { return fold(in[0], {4, 5}, windows); }, {leaf({2, 6, 12})});
  check_both([&](const auto& in) { return fold(in[0], {4, 5}, windows); }, {leaf({6, 12})});
  check_both([](const auto& in) { return pixel_shuffle(in[0], 2); }, {leaf({2, 4, 3, 2})});
  check_both([](const auto& in) { return pixel_unshuffle(in[0], 2); }, {leaf({2, 4, 2})});
  check_both([](const auto& in) { return channel_shuffle(in[0], 3); }, {leaf({2, 6, 3})});
  for (std::int64_t out : {1, 3, 4, 7}) {
    for (bool align : {false, true}) {
      check_both(
          [=](const auto& in) {
            return interpolate(
                in[0], {.size = {out}, .mode = InterpolateMode::kLinear, .align_corners = align});
          },
          {leaf({2, 1, 4})});
      check_both(
          [=](const auto& in) {
            return interpolate(
                in[0],
                {.size = {out, 5}, .mode = InterpolateMode::kBilinear, .align_corners = align});
          },
          {leaf({1, 2, 4, 3})});
    }
    check_both([=](const auto& in) { return interpolate(in[0], {.size = {out}}); },
               {leaf({1, 2, 4})});
    check_both(
        [=](const auto& in) {
          return interpolate(in[0], {.size = {3, out}, .mode = InterpolateMode::kArea});
        },
        {leaf({1, 2, 4, 5})});
  }
}

TEST_CASE("norms of channels: derivatives") {
  check_both([](const auto& in) { return instance_norm(in[0], in[1], in[2]); },
             {leaf({2, 3, 4}, -1, 3), leaf({3}), leaf({3}, 1, 2)});
  const Tensor mean = irregular({3}), var = irregular({3}, 1, 2);
  check_both(
      [&](const auto& in) {
        return instance_norm(in[0], in[1], in[2],
                             {.running_mean = mean, .running_var = var, .use_input_stats = false});
      },
      {leaf({2, 3, 2, 2}), leaf({3}), leaf({3}, 1, 2)});
  const Variable x = leaf({2, 3, 4});
  check_twice([&](const Inputs& in) { return instance_norm(in[0], {}, {}); }, {x});
  check_both(
      [](const auto& in) {
        return local_response_norm(in[0], {.size = 3, .alpha = 0.7, .beta = 0.6});
      },
      {leaf({2, 4, 3})});
}

TEST_CASE("conv_transpose: derivatives by input, weight and bias") {
  const ConvTranspose2dOptions all[] = {
      {},
      {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .groups = 2},
      {.padding = 1, .output_padding = {1, 2}, .dilation = {2, 3}}};
  for (const ConvTranspose2dOptions& o : all) {
    const std::int64_t outputs = 2 * o.groups;
    check_both([&](const auto& in) { return conv_transpose2d(in[0], in[1], in[2], o); },
               {leaf({2, 4, 3, 3}), leaf({4, 2, 2, 3}), leaf({outputs})});
    check_both([&](const auto& in) { return conv_transpose2d(in[0], in[1], in[2], o); },
               {leaf({4, 3, 3}), leaf({4, 2, 2, 3}), leaf({outputs})});
  }
  const ConvTranspose1dOptions line{.stride = 2, .padding = 1, .output_padding = 1};
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{3, 4}, Shape{0, 3, 4}}) {
    check_twice([&](const Inputs& in) { return conv_transpose1d(in[0], in[1], {}, line); },
                {leaf(shape), leaf({3, 2, 3})});
  }
  const AutocastGuard autocast(DType::kBF16);
  const Variable y = conv_transpose1d(leaf({2, 3, 4}), leaf({3, 2, 3}), {}, line);
  CHECK(y.dtype() == DType::kBF16);
}

TEST_CASE("windows of a sample without a batch: derivatives") {
  check_twice([](const Inputs& in) { return conv2d(in[0], in[1], in[2]); },
              {leaf({2, 4, 3}), leaf({3, 2, 2, 2}), leaf({3})});
  check_twice([](const Inputs& in) { return conv1d(in[0], in[1], in[2]); },
              {leaf({2, 4}), leaf({3, 2, 2}), leaf({3})});
  check_once([](const Inputs& in) { return max_pool2d(in[0], {.kernel = 2}); }, {leaf({2, 4, 5})});
  check_once([](const Inputs& in) { return max_pool1d(in[0], {.kernel = 2}); }, {leaf({2, 5})});
  check_once([](const Inputs& in) { return adaptive_max_pool2d(in[0], 2); }, {leaf({2, 4, 5})});
  check_once([](const Inputs& in) { return adaptive_max_pool1d(in[0], 2); }, {leaf({2, 5})});
  check_twice([](const Inputs& in) { return avg_pool2d(in[0], {.kernel = 2}); }, {leaf({2, 4, 5})});
  check_twice([](const Inputs& in) { return avg_pool1d(in[0], {.kernel = 2}); }, {leaf({2, 5})});
  check_twice([](const Inputs& in) { return adaptive_avg_pool2d(in[0], 2); }, {leaf({2, 4, 5})});
  check_twice([](const Inputs& in) { return adaptive_avg_pool1d(in[0], 2); }, {leaf({2, 5})});
}

TEST_CASE("attention of one head without heads and batch") {
  const Tensor mask = irregular({3, 4});
  const Inputs in = {leaf({3, 2}), leaf({4, 2}, -1, 1, 0.5), leaf({4, 5}, -1, 1, 0.9)};
  const auto attend = [&](const Inputs& x) {
    return scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true, .mask = mask});
  };
  const Variable y = attend(in);
  CHECK(y.shape() == Shape{3, 5});
  CHECK(values(y) ==
        values(attend({unsqueeze(in[0], 0), unsqueeze(in[1], 0), unsqueeze(in[2], 0)})));
  const AttentionResult plain = scaled_dot_product_attention(
      in[0].tensor(), in[1].tensor(), in[2].tensor(), {.causal = true, .mask = mask});
  CHECK(values(plain.output) == values(y));
  CHECK(plain.log_sum_exp.shape() == Shape{3});
  check_once(attend, in);
}

TEST_CASE("dropout2d drops channels, and divides the others") {
  const Variable x(ones({40, 5, 3, 2}, {.dtype = DType::kF64}), true);
  const DropoutOptions options{.p = 0.25, .layer = "drop"};
  const auto run = [&](const Variable& in) {
    const random::StepScope step({.seed = 3, .step = 1});
    return dropout2d(in, options);
  };
  const std::vector<double> y = values(run(x));
  std::size_t dropped = 0;
  for (std::size_t channel = 0; channel < 200; ++channel) {
    const double first = y[channel * 6];
    CHECK((first == 0 || first == 1 / 0.75));
    dropped += first == 0 ? 1 : 0;
    for (std::size_t i = 1; i < 6; ++i) CHECK(y[channel * 6 + i] == first);
  }
  CHECK(dropped > 30);
  CHECK(dropped < 70);
  backward(sum(run(x)));
  CHECK(values(x.grad()) == y);  // x is 1
  // Samples drop the same, whichever rank computes them.
  const Variable last(x.tensor().slice(0, 30, 40));
  const random::StepScope step({.seed = 3, .step = 1, .first_sample = 30});
  CHECK(values(dropout2d(last, options)) == std::vector<double>(y.begin() + 900, y.end()));
  CHECK(dropout2d(x, {.p = 0.5, .training = false}).same_as(x));
  CHECK(dropout2d(cast(x, DType::kBF16), options).dtype() == DType::kBF16);
  CHECK(thrown<InvalidArgument>([&] {
          dropout2d(leaf({2, 3}), options);
        }) ==
        "[dropout2d] needs an input [samples, channels, ...] of at least 3 dims, got shape [2, 3]");
  CHECK(thrown<InvalidArgument>([&] { dropout2d(x, {.p = 2}); }) ==
        "[dropout2d] p is 2; it must lie in [0, 1]");
  CHECK(thrown<InvalidArgument>([&] { dropout2d(x, {.p = 0.5}); }) ==
        "[dropout2d] the layer has no name; give one, its random numbers are found by it");
}

TEST_CASE("alpha_dropout keeps mean and variance") {
  const double dropped = -1.7580993408473766;
  const Variable x = leaf({50, 40}, -1.7320508, 1.7320508);  // mean 0, variance 1
  const DropoutOptions options{.p = 0.3, .layer = "drop"};
  const auto run = [&](const Inputs& in) {
    const random::StepScope step({.seed = 5, .step = 1});
    return alpha_dropout(in[0], options);
  };
  const double a = 1 / std::sqrt(0.7 * (1 + 0.3 * dropped * dropped)), b = -0.3 * a * dropped;
  const std::vector<double> in = values(x), y = values(run({x}));
  std::size_t count = 0;
  double total = 0, squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const bool is_dropped = std::abs(y[i] - (a * dropped + b)) < 1e-12;
    CHECK((is_dropped || std::abs(y[i] - (a * in[i] + b)) < 1e-12));
    count += is_dropped ? 1 : 0;
    total += y[i], squares += y[i] * y[i];
  }
  CHECK(std::abs(static_cast<double>(count) / 2000 - 0.3) < 0.04);
  CHECK(std::abs(total / 2000) < 0.1);
  CHECK(std::abs(squares / 2000 - 1) < 0.1);
  check_twice(run, {leaf({4, 5})});
  CHECK(alpha_dropout(x, {.p = 0}).same_as(x));
  CHECK(values(alpha_dropout(leaf({2}), {.p = 1, .layer = "all"})) == std::vector<double>{0, 0});
  CHECK(thrown<InvalidArgument>([&] { alpha_dropout(x, {.p = -1}); }) ==
        "[alpha_dropout] p is -1; it must lie in [0, 1]");
}

}  // namespace
}  // namespace tessera::testing
