// Pooling layers: windows by a plain loop, derivatives, and that every option arrives.

#include "tessera/nn/layers/pool.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

struct Window {
  std::int64_t first, last;  // [first, last) of the input
};

// y[.., i] from the elements of x in windows[i], over a last dim of extent `length`.
std::vector<double> pooled(const std::vector<double>& x, std::int64_t length,
                           const std::vector<Window>& windows, bool largest) {
  std::vector<double> out;
  for (std::size_t row = 0; row < x.size(); row += std::size_t(length)) {
    for (const Window& w : windows) {
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t i = w.first; i < w.last; ++i) {
        const double v = x[row + std::size_t(i)];
        most = std::max(most, v);
        sum += v;
      }
      out.push_back(largest ? most : sum / double(w.last - w.first));
    }
  }
  return out;
}

template <class L>
void check_pool1d(const typename L::Options& options, const std::vector<Window>& windows,
                  bool largest) {
  L layer(options);
  const Variable x = random_input({2, 3, 7}, 1);
  const Variable y = layer(x);
  REQUIRE(y.shape() == Shape{2, 3, std::int64_t(windows.size())});
  const std::vector<double> expected = pooled(values(x.tensor()), 7, windows, largest);
  const std::vector<double> out = values(y.tensor());
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == Approx(expected[i]).margin(1e-15));
  CHECK(testing::check_gradients(layer, x) == "");
  CHECK(layer(random_input({0, 3, 7}, 1)).shape() == y.shape().with(0, 0));
  const Variable half = layer(Variable(cast(x.tensor(), DType::kBF16)));
  CHECK(half.dtype() == DType::kBF16);
}

TEST_CASE("pools of one spatial dim") {
  check_pool1d<nn::MaxPool1d>({.kernel = 2}, {{0, 2}, {2, 4}, {4, 6}}, true);
  check_pool1d<nn::MaxPool1d>({.kernel = 3, .stride = 2, .padding = 1},
                              {{0, 2}, {1, 4}, {3, 6}, {5, 7}}, true);
  check_pool1d<nn::MaxPool1d>({.kernel = 2, .ceil_mode = true}, {{0, 2}, {2, 4}, {4, 6}, {6, 7}},
                              true);
  check_pool1d<nn::AvgPool1d>({.kernel = 3, .stride = 2}, {{0, 3}, {2, 5}, {4, 7}}, false);
  check_pool1d<nn::AvgPool1d>({.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false},
                              {{0, 2}, {1, 4}, {3, 6}, {5, 7}}, false);
  check_pool1d<nn::AdaptiveAvgPool1d>({.output = 3}, {{0, 3}, {2, 5}, {4, 7}}, false);
  check_pool1d<nn::AdaptiveMaxPool1d>({.output = 2}, {{0, 4}, {3, 7}}, true);
}

TEST_CASE("pools of two spatial dims are the operations, with every option") {
  const Variable x = random_input({2, 3, 7, 5}, 2);
  const MaxPool2dOptions max{
      .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .ceil_mode = true};
  nn::MaxPool2d max_layer(max);
  CHECK(values(max_layer(x).tensor()) == values(max_pool2d(x.tensor(), max).output));
  CHECK(testing::check_gradients(max_layer, x) == "");
  const AvgPool2dOptions mean{.kernel = {3, 2},
                              .stride = {2, 1},
                              .padding = {1, 0},
                              .ceil_mode = true,
                              .count_include_pad = false};
  nn::AvgPool2d mean_layer(mean);
  CHECK(values(mean_layer(x).tensor()) == values(avg_pool2d(x.tensor(), mean)));
  CHECK(testing::check_gradients(mean_layer, x) == "");
  nn::Sequential net;
  net.add<nn::AdaptiveAvgPool2d>({.output = {3, 2}});
  net.add<nn::AdaptiveMaxPool2d>({.output = 1});
  CHECK(net(x).shape() == Shape{2, 3, 1, 1});
  CHECK(values(net(x).tensor()) ==
        values(adaptive_max_pool2d(adaptive_avg_pool2d(x.tensor(), {3, 2}), 1).output));
  CHECK(testing::check_gradients(net, x) == "");
}

TEST_CASE("pools refuse sizes below 1") {
  CHECK(thrown<InvalidArgument>([] { nn::MaxPool1d(MaxPool1dOptions{}); }) ==
        "[nn.MaxPool1d] kernel is 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([] { nn::AvgPool1d(AvgPool1dOptions{}); }) ==
        "[nn.AvgPool1d] kernel is 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([] {
          nn::MaxPool2d({.kernel = {2, 0}});
        }) == "[nn.MaxPool2d] kernel is 2 x 0; both must be at least 1");
  CHECK(thrown<InvalidArgument>([] { nn::AvgPool2d({.kernel = -1}); }) ==
        "[nn.AvgPool2d] kernel is -1 x -1; both must be at least 1");
  CHECK(thrown<InvalidArgument>([] { nn::AdaptiveAvgPool1d({.output = 0}); }) ==
        "[nn.AdaptiveAvgPool1d] output is 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([] { nn::AdaptiveMaxPool1d({.output = 0}); }) ==
        "[nn.AdaptiveMaxPool1d] output is 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([] {
          nn::AdaptiveAvgPool2d({.output = {0, 1}});
        }) == "[nn.AdaptiveAvgPool2d] output is 0 x 1; both must be at least 1");
  CHECK(thrown<InvalidArgument>([] {
          nn::AdaptiveMaxPool2d({.output = {0, 1}});
        }) == "[nn.AdaptiveMaxPool2d] output is 0 x 1; both must be at least 1");
}

}  // namespace
}  // namespace tessera
