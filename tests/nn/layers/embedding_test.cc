// Embedding: rows, what it starts with on any shard, gradients.

#include "tessera/nn/layers/embedding.h"

#include <catch2/catch.hpp>

#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/nn/layers/layer_support.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera {
namespace {

using testing::thrown;
using testing::values;

TEST_CASE("an embedding gives the rows that the index names") {
  nn::Embedding layer({.entries = 5, .dim = 3, .dtype = DType::kF64});
  nn::initialize(layer);
  const std::vector<double> table = values(layer.weight().local().tensor());
  const std::vector<std::int64_t> index{4, 0, 0, 2, 1, 4};
  const Tensor named = Tensor::from_vector(index, {2, 3});
  const Variable y = layer(named);
  REQUIRE(y.shape() == Shape{2, 3, 3});
  const std::vector<double> out = values(y.tensor());
  for (std::size_t i = 0; i < out.size(); ++i)
    CHECK(out[i] == table[static_cast<std::size_t>(index[i / 3]) * 3 + i % 3]);
  CHECK(layer(zeros({0}, {.dtype = DType::kI64})).shape() == Shape{0, 3});
  CHECK(layer(Tensor::scalar(1, {.dtype = DType::kI32})).shape() == Shape{3});
  nn::Sequential net;
  net.add<nn::Embedding>({.entries = 5, .dim = 3});
  nn::initialize(net);
  CHECK(net(Variable(named)).shape() == Shape{2, 3, 3});
}

TEST_CASE("an embedding starts standard normal, with a padding entry of zeros") {
  nn::Embedding layer({.entries = 400, .dim = 20, .padding_index = 7, .dtype = DType::kF64});
  nn::initialize(layer);
  CHECK(layer.padding_index() == 7);
  const std::vector<double> table = values(layer.weight().local().tensor());
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (i / 20 == 7) CHECK(table[i] == 0);
    sum += table[i];
    squares += table[i] * table[i];
  }
  CHECK(std::abs(sum / 7980) < 0.05);
  CHECK(std::abs(squares / 7980 - 1) < 0.05);
}

TEST_CASE("an embedding starts with the values that its options name, the padding entry with 0") {
  nn::Embedding layer(
      {.entries = 4, .dim = 2, .padding_index = 1, .weight_init = nn::init::constant(3)});
  nn::initialize(layer);
  CHECK(values(layer.weight().local().tensor()) == std::vector<double>{3, 3, 0, 0, 3, 3, 3, 3});
}

TEST_CASE("a shard of an embedding holds the rows of the whole, zeros of the padding entry too") {
  nn::Embedding whole({.entries = 9, .dim = 2, .padding_index = 4, .dtype = DType::kF64});
  nn::initialize(whole);
  const std::vector<double> table = values(whole.weight().local().tensor());
  for (std::int64_t first : {0, 2, 4, 5, 7}) {
    nn::Embedding part({.entries = 9, .dim = 2, .padding_index = 4, .dtype = DType::kF64});
    part.weight().shard(testing::row_sharding({9, 2}, first, 2, 3),
                        std::make_shared<testing::FakeOwner>("g"));
    nn::initialize(part);
    const auto begin = table.begin() + 2 * first;
    CHECK(values(part.weight().local().tensor()) == std::vector<double>(begin, begin + 4));
  }
}

TEST_CASE("an embedding: derivatives add up, and the padding entry gets none") {
  nn::Embedding layer({.entries = 4, .dim = 3, .dtype = DType::kF64});
  nn::initialize(layer);
  const Tensor index = Tensor::from_vector<std::int64_t>({2, 0, 2, 2, 3}, {5});
  const GradCheckResult checked =
      testing::parameter_grad_check(layer, [&] { return layer(index); });
  INFO(checked.message);
  CHECK(checked.passed);
  nn::Embedding padded({.entries = 4, .dim = 2, .padding_index = 2, .dtype = DType::kF64});
  nn::initialize(padded);
  backward(sum(padded(index)));
  CHECK(values(padded.weight().grad()) == std::vector<double>{1, 1, 0, 0, 0, 0, 1, 1});
}

TEST_CASE("an embedding of 16 bits") {
  nn::Embedding layer({.entries = 4, .dim = 3, .dtype = DType::kBF16});
  nn::initialize(layer);
  const Variable y = layer(Tensor::from_vector<std::int64_t>({3}, {1}));
  CHECK(testing::all_equal(y.tensor(), layer.weight().local().tensor().slice(0, 3, 4)).ok);
}

TEST_CASE("an embedding names what does not fit") {
  CHECK(thrown<InvalidArgument>([] { nn::Embedding({.entries = 0, .dim = 2}); }) ==
        "[nn.Embedding] expected entries and dim of at least 1, got entries = 0, dim = 2");
  CHECK(thrown<InvalidArgument>([] {
          nn::Embedding({.entries = 3, .dim = 2, .padding_index = 3});
        }) == "[nn.Embedding] padding_index is 3; it must be an entry below 3, or -1 for none");
  nn::Embedding layer({.entries = 3, .dim = 2});
  nn::initialize(layer);
  CHECK(thrown<InvalidArgument>([&] { layer(zeros({2})); }).find("embedding") != std::string::npos);
  CHECK(thrown<InvalidArgument>(
            [&] { layer(full({2}, 3, {.dtype = DType::kI64})).tensor().to_vector<float>(); }) ==
        "[embedding] index 3 at position 0 is outside [0, 3), the extent of dim 0; count "
        "from 0");
}

}  // namespace
}  // namespace tessera
