// Layers of which a rank has a part: partial sums before a Linear's bias, some rows of an
// Embedding, a part of Dropout's input, some heads of attention.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/layers/transformer/head_part.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/close.h"

namespace tessera {
namespace {

using testing::all_close;
using testing::all_equal;
using testing::thrown;

nn::ShardSpec rows_of(const Shape& global, std::int64_t first, std::int64_t rows) {
  return {.global_shape = global,
          .boxes = {{.offset = Shape::filled(global.ndim(), 0).with(0, first),
                     .extent = global.with(0, rows)}},
          .sharded_axes = {"tp"}};
}

TEST_CASE("a Linear adds its bias after what comes before it") {
  for (const bool bias : {true, false}) {
    nn::Linear layer({.in = 3, .out = 2, .bias = bias, .dtype = DType::kF64});
    nn::initialize(layer);
    const Variable x(full({4, 3}, 0.5, {.dtype = DType::kF64}));
    const Tensor product = linear(x, layer.weight().value(), {}).tensor();
    layer.set_before_bias([](const Variable& y) { return y * 10.0; });
    Tensor expected = mul(product, 10.0);
    if (bias) expected = add(expected, layer.bias().value().tensor());
    CHECK(all_close(layer(x).tensor(), expected));
    layer.set_before_bias(nullptr);
    expected = bias ? add(product, layer.bias().value().tensor()) : product;
    CHECK(all_close(layer(x).tensor(), expected));
  }
}

TEST_CASE("under autocast a bias that comes late is cast as one that does not") {
  nn::Linear layer({.in = 3, .out = 2});
  nn::initialize(layer);
  const Variable x(full({4, 3}, 0.5));
  const AutocastGuard autocast(DType::kBF16);
  const Tensor expected = layer(x).tensor();
  layer.set_before_bias([](const Variable& y) { return y; });
  const Tensor y = layer(x).tensor();
  CHECK(y.dtype() == DType::kBF16);
  CHECK(all_close(y, expected));
}

TEST_CASE("rows of an Embedding that are elsewhere read as zeros, and the parts add up") {
  const auto build = [] {
    return std::make_unique<nn::Embedding>(
        nn::EmbeddingOptions{.entries = 5, .dim = 2, .padding_index = 3, .dtype = DType::kF64});
  };
  const auto whole = build();
  nn::initialize(*whole, {.seed = 4});
  const Tensor index =
      Tensor::from_vector(std::vector<std::int64_t>{4, 0, 3, 2, 2, 1}, {2, 3}).transpose(0, 1);
  const Variable y = (*whole)(index);
  backward(sum(square(y)));
  Tensor total = zeros({3, 2, 2}, {.dtype = DType::kF64});
  for (const auto& [first, rows] : {std::pair{0, 2}, {2, 2}, {4, 1}, {5, 0}}) {
    const auto part = build();
    part->weight().cut(rows_of({5, 2}, first, rows), nn::local_mesh());
    nn::initialize(*part, {.seed = 4});
    const Variable mine = (*part)(index);
    total = add(total, mine.tensor());
    backward(sum(square(mine)));
    CHECK(all_close(part->weight().grad(), whole->weight().grad().narrow(0, first, rows)));
  }
  CHECK(all_equal(total, contiguous(y.tensor())));
}

TEST_CASE("a part of what Dropout sees drops what the whole does") {
  nn::Dropout whole({.p = 0.5}), part({.p = 0.5});
  const Variable x(ones({4, 6, 3}));
  const auto drop = [](nn::Dropout& layer, const Variable& in, std::int64_t first) {
    const random::StepScope scope({.seed = 1, .step = 2, .first_sample = first});
    return layer(in).tensor();
  };
  const Tensor expected = drop(whole, x, 5);
  for (int i = 0; i < 2; ++i) {
    part.set_split({.dim = -2, .parts = 2, .part = i});
    CHECK(all_equal(drop(part, slice(x, 1, 3 * i, 3 * i + 3), 5),
                    contiguous(expected.slice(1, 3 * i, 3 * i + 3))));
    part.set_split({.dim = 0, .parts = 2, .part = i});
    CHECK(all_equal(drop(part, slice(x, 0, 2 * i, 2 * i + 2), 5),
                    contiguous(expected.slice(0, 2 * i, 2 * i + 2))));
  }
  part.eval();
  CHECK(all_equal(drop(part, x, 5), x.tensor()));
  part.train();
  CHECK(thrown<InvalidArgument>([&] { part.set_split({.dim = 0, .parts = 2, .part = 2}); }) ==
        "[nn.Dropout] part 2 of 2: parts count from 0");
  part.set_split({.dim = 3, .parts = 2, .part = 0});
  CHECK(thrown<InvalidArgument>([&] { drop(part, x, 0); }) ==
        "[nn.Dropout] the layer is split along dim 3, and the input has shape [4, 6, 3]");
}

TEST_CASE("heads of a rank lie in those of all") {
  nn::Linear queries({.in = 12, .out = 12, .bias = false});
  queries.weight().cut(rows_of({12, 12}, 6, 3), nn::local_mesh());
  const nn::HeadPart part = nn::head_part(queries.weight(), 3, 12);
  CHECK(part.first == 2);
  CHECK(part.all == 4);
  const random::StepScope scope({.seed = 1, .step = 2, .first_sample = 5});
  const random::Box box = nn::probability_box({2, 1, 6, 7}, part);
  CHECK(box.offset == Shape{5, 2, 0, 0});
  CHECK(box.global == Shape{7, 4, 6, 7});
}

TEST_CASE("attention with a part of a head is refused") {
  nn::MultiheadAttention attention({.dim = 8, .heads = 2, .bias = false});
  nn::Parameter weight = attention.get_parameter("in_proj_weight");
  weight.cut(rows_of({24, 8}, 0, 9), nn::local_mesh());
  nn::initialize(attention);
  CHECK(
      thrown<InvalidArgument>([&] {
        attention(Variable(ones({1, 2, 8})));
      }) ==
      "[nn.MultiheadAttention] this rank's projections are 3 wide, no multiple of a head's 4: cut "
      "them by heads, over ranks whose number divides the heads");
}

}  // namespace
}  // namespace tessera
