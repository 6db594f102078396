// Convolutions and pools train as PyTorch's do.
#include <catch2/catch.hpp>

#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/conv.h"
#include "tessera/nn/layers/flatten.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/pool.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::check_training;
using testing::MakeModel;
using testing::on_x;
using testing::sequence_on_x;

TEST_CASE("parity: convolution") {
  check_training("conv", "Conv1d", on_x<nn::Conv1d>({.in = 3, .out = 4, .kernel = 3}));
  check_training("conv", "Conv1d, stride 2, padding 2, dilation 2, groups 2, without bias",
                 on_x<nn::Conv1d>({.in = 4,
                                   .out = 6,
                                   .kernel = 3,
                                   .stride = 2,
                                   .padding = 2,
                                   .dilation = 2,
                                   .groups = 2,
                                   .bias = false}));
  check_training("conv", "Conv1d, same padding",
                 on_x<nn::Conv1d>({.in = 3, .out = 4, .kernel = 4, .same_padding = true}));
  check_training("conv", "Conv2d", on_x<nn::Conv2d>({.in = 2, .out = 3, .kernel = 3}));
  check_training(
      "conv", "Conv2d, stride 2, padding 1, groups 2",
      on_x<nn::Conv2d>({.in = 4, .out = 6, .kernel = 3, .stride = 2, .padding = 1, .groups = 2}));
  check_training("conv", "Conv2d, every number of a pair different",
                 on_x<nn::Conv2d>({.in = 2,
                                   .out = 3,
                                   .kernel = {2, 3},
                                   .stride = {2, 1},
                                   .padding = {0, 2},
                                   .dilation = {1, 2},
                                   .bias = false}));
  check_training(
      "conv", "Conv2d, same padding, dilation",
      on_x<nn::Conv2d>(
          {.in = 2, .out = 3, .kernel = {2, 3}, .same_padding = true, .dilation = {1, 2}}));
  check_training("conv", "Conv2d of each channel by itself",
                 on_x<nn::Conv2d>({.in = 3, .out = 3, .kernel = 3, .padding = 1, .groups = 3}));
}

// Conv1d(2, 3, 3), the pool, Conv1d(3, 2, 1).
template <class Pool>
MakeModel sequences(const typename Pool::Options& options) {
  return sequence_on_x([options](nn::Sequential& net) {
    net.add<nn::Conv1d>({.in = 2, .out = 3, .kernel = 3});
    net.add<Pool>(options);
    net.add<nn::Conv1d>({.in = 3, .out = 2, .kernel = 1});
  });
}
// Conv2d(1, 2, 3), the pool, Conv2d(2, 2, 1).
template <class Pool>
MakeModel images(const typename Pool::Options& options) {
  return sequence_on_x([options](nn::Sequential& net) {
    net.add<nn::Conv2d>({.in = 1, .out = 2, .kernel = 3});
    net.add<Pool>(options);
    net.add<nn::Conv2d>({.in = 2, .out = 2, .kernel = 1});
  });
}

TEST_CASE("parity: pools of sequences") {
  check_training("pool", "MaxPool1d",
                 sequences<nn::MaxPool1d>({.kernel = 3, .stride = 2, .padding = 1}));
  check_training("pool", "AvgPool1d", sequences<nn::AvgPool1d>({.kernel = 2}));
  check_training("pool", "AdaptiveMaxPool1d", sequences<nn::AdaptiveMaxPool1d>({.output = 4}));
  check_training("pool", "AdaptiveAvgPool1d", sequences<nn::AdaptiveAvgPool1d>({.output = 4}));
}

TEST_CASE("parity: pools of images") {
  check_training("pool", "MaxPool2d", images<nn::MaxPool2d>({.kernel = 2}));
  check_training("pool", "MaxPool2d, padding and dilation",
                 images<nn::MaxPool2d>({.kernel = 2, .stride = 1, .padding = 1, .dilation = 2}));
  check_training("pool", "AvgPool2d",
                 images<nn::AvgPool2d>(
                     {.kernel = {3, 2}, .stride = 2, .padding = 1, .count_include_pad = false}));
  check_training("pool", "AdaptiveMaxPool2d", images<nn::AdaptiveMaxPool2d>({.output = {3, 4}}));
  check_training("pool", "AdaptiveAvgPool2d", images<nn::AdaptiveAvgPool2d>({.output = {3, 4}}));
}

TEST_CASE("parity: a small convolutional net") {
  check_training("pool", "a small convolutional net", sequence_on_x([](nn::Sequential& net) {
                   net.add<nn::Conv2d>({.in = 1, .out = 3, .kernel = 3});
                   net.add<nn::BatchNorm2d>({.channels = 3});
                   net.add<nn::ReLU>();
                   net.add<nn::MaxPool2d>({.kernel = 2});
                   net.add<nn::Conv2d>({.in = 3, .out = 4, .kernel = 2});
                   net.add<nn::GELU>();
                   net.add<nn::AdaptiveAvgPool2d>({.output = 1});
                   net.add<nn::Flatten>();
                   net.add<nn::Linear>({.in = 4, .out = 3});
                 }));
}

}  // namespace
}  // namespace tessera
