// Options of a layer, in parentheses and in braces, by name and by position: all compile, and mean
// the same.
#include <catch2/catch.hpp>
#include <string>

#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/conv.h"
#include "tessera/nn/layers/conv_transpose.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/pool.h"
#include "tessera/nn/layers/rnn.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/parameter.h"

namespace tessera {
namespace {

Shape first_weight(nn::Module& layer) { return layer.parameters().at(0).shape(); }

class InBraces final : public nn::Layer<InBraces> {
 public:
  Variable forward(const Variable& x) { return x; }
  nn::Linear linear{{3, 4}};
  nn::Conv2d conv{{3, 8, 5}};
  nn::BatchNorm2d norm{{8}};
  nn::LayerNorm layer_norm{{{7}}};
  nn::Dropout dropout{{0.25}};
};

TEST_CASE("options by position, in parentheses") {
  nn::Linear linear({3, 4, false});
  CHECK(first_weight(linear) == Shape{4, 3});
  CHECK_FALSE(linear.has_bias());
  nn::Conv1d conv1d({3, 8, 5});
  CHECK(first_weight(conv1d) == Shape{8, 3, 5});
  nn::Conv2d conv2d({3, 8, {5, 7}, 2});
  CHECK(first_weight(conv2d) == Shape{8, 3, 5, 7});
  nn::ConvTranspose2d transposed({8, 3, 5});
  CHECK(first_weight(transposed) == Shape{8, 3, 5, 5});
  nn::BatchNorm2d batch_norm({9});
  CHECK(first_weight(batch_norm) == Shape{9});
  nn::LayerNorm layer_norm({{7, 5}});
  CHECK(first_weight(layer_norm) == Shape{7, 5});
  nn::RMSNorm rms_norm({{7}});
  CHECK(first_weight(rms_norm) == Shape{7});
  nn::GroupNorm group_norm({2, 6});
  CHECK(first_weight(group_norm) == Shape{6});
  nn::Embedding embedding({11, 3});
  CHECK(first_weight(embedding) == Shape{11, 3});
  CHECK(nn::Dropout({0.25}).p() == 0.25);
  nn::LSTM lstm({3, 5});
  CHECK(first_weight(lstm) == Shape{20, 3});
  nn::MultiheadAttention attention({6, 2});
  CHECK(first_weight(attention).back() == 6);
}

TEST_CASE("options by position, in braces of a member") {
  InBraces layers;
  CHECK(first_weight(layers.linear) == Shape{4, 3});
  CHECK(first_weight(layers.conv) == Shape{8, 3, 5, 5});
  CHECK(first_weight(layers.norm) == Shape{8});
  CHECK(first_weight(layers.layer_norm) == Shape{7});
  CHECK(layers.dropout.p() == 0.25);
}

TEST_CASE("options by name, in parentheses and in braces") {
  nn::Linear parentheses({.in = 3, .out = 4}), braces{{.in = 3, .out = 4}};
  CHECK(first_weight(parentheses) == first_weight(braces));
  nn::MaxPool2d pool({.kernel = 2}), pool_by_position({2});
  const Variable x(ones({1, 1, 4, 6}));
  CHECK(pool(x).shape() == Shape{1, 1, 2, 3});
  CHECK(pool_by_position(x).shape() == Shape{1, 1, 2, 3});
}

}  // namespace
}  // namespace tessera
