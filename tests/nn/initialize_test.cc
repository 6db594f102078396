// Initial values: what they are, and that no sharding changes them.

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/module.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using testing::FakeOwner;
using testing::thrown;
using testing::values;

struct One final : nn::Layer<One> {
  One(const Shape& shape, DType dtype, nn::Initializer init)
      : p({.shape = shape, .dtype = dtype, .init = std::move(init)}) {
    register_parameter("p", p);
  }
  Variable forward(const Variable& x) { return x; }
  Parameter p;
};

std::vector<double> initial(const Shape& shape, DType dtype, const nn::Initializer& init,
                            const nn::InitializeOptions& options = {}) {
  One one(shape, dtype, init);
  nn::initialize(one, options);
  return values(one.p.local().tensor());
}

TEST_CASE("only_missing keeps what has values, and fills the rest as if all were filled") {
  nn::Sequential whole, part;
  for (nn::Sequential* net : {&whole, &part}) {
    net->add<nn::Linear>({.in = 3, .out = 4});
    net->add<nn::Linear>({.in = 4, .out = 2});
  }
  nn::initialize(whole, {.seed = 5});
  const Parameter loaded = part.parameters().front();
  loaded.materialize(kCpu);
  fill_(loaded.local().tensor(), 7);
  nn::initialize(part, {.seed = 5, .only_missing = true});
  const auto expected = whole.parameters(), found = part.parameters();
  CHECK(values(loaded.local().tensor()) == std::vector<double>(12, 7));
  CHECK(loaded.name() == expected.front().name());
  for (std::size_t i = 1; i < expected.size(); ++i)
    CHECK(values(found[i].local().tensor()) == values(expected[i].local().tensor()));
  nn::initialize(part, {.seed = 5});
  CHECK(values(loaded.local().tensor()) == values(expected.front().local().tensor()));
}

TEST_CASE("initializers give what their names say") {
  CHECK(initial({2, 2}, DType::kF32, nn::init::zeros()) == std::vector<double>(4, 0));
  CHECK(initial({3}, DType::kF64, nn::init::ones()) == std::vector<double>(3, 1));
  CHECK(initial({}, DType::kF64, nn::init::constant(-2.5)) == std::vector<double>{-2.5});
  CHECK(initial({0, 4}, DType::kF64, nn::init::normal(0, 1)).empty());
  double low = 0, high = 0, mean = 0;
  const std::vector<double> uniform =
      initial({100, 70}, DType::kF32, nn::init::uniform(-0.5, 0.25));
  for (double u : uniform) {
    low = std::min(low, u);
    high = std::max(high, u);
    mean += u / 7000;
  }
  CHECK(low >= -0.5);
  CHECK(low < -0.49);
  CHECK(high < 0.25);
  CHECK(high > 0.24);
  CHECK(std::abs(mean + 0.125) < 0.02);
  double sum = 0, squares = 0;
  for (double n : initial({100, 70}, DType::kF64, nn::init::normal(1, 2))) {
    sum += n;
    squares += (n - 1) * (n - 1);
  }
  CHECK(std::abs(sum / 7000 - 1) < 0.1);
  CHECK(std::abs(std::sqrt(squares / 7000) - 2) < 0.1);
  CHECK(thrown<InvalidArgument>([] { nn::init::uniform(1, 0); }) ==
        "[nn.init.uniform] expected low <= high, got 1 and 0");
  CHECK(thrown<InvalidArgument>([] { nn::init::normal(0, -1); }) ==
        "[nn.init.normal] expected stddev >= 0, got -1");
}

TEST_CASE("values depend on seed, prefix and name, and on nothing else") {
  const auto init = nn::init::uniform(0, 1);
  const auto reference = initial({5, 3}, DType::kF64, init, {.seed = 4});
  CHECK(initial({5, 3}, DType::kF64, init, {.seed = 4}) == reference);
  CHECK(initial({5, 3}, DType::kF64, init, {.seed = 5}) != reference);
  CHECK(initial({5, 3}, DType::kF64, init, {.seed = 4, .prefix = "x."}) != reference);
  Parameter by_hand({.shape = {5, 3}, .dtype = DType::kF64, .init = init});
  by_hand.materialize(default_device());
  by_hand.reset(random::named_key(4, "p"));
  CHECK(values(by_hand.local().tensor()) == reference);

  nn::Sequential whole;
  whole.add<nn::Linear>({.in = 3, .out = 2});
  whole.add<nn::Linear>({.in = 2, .out = 4});
  nn::initialize(whole, {.seed = 2});
  CHECK(whole.parameters()[2].name() == "1.weight");
  nn::Linear part({.in = 2, .out = 4});
  nn::initialize(part, {.seed = 2, .prefix = "1."});
  CHECK(part.weight().name() == "1.weight");
  CHECK(values(part.weight().local().tensor()) == values(whole.parameters()[2].local().tensor()));
}

// local() of a parameter of `shape` that holds `boxes`, initialised before or after it was sharded.
std::vector<double> initial_boxes(const Shape& shape, const std::vector<nn::ShardBox>& boxes,
                                  DType dtype, bool initialize_first) {
  One one(shape, dtype, nn::init::normal(0, 1));
  Shape local = shape.with(0, 0);
  for (const nn::ShardBox& box : boxes) {
    local = box.extent.with(0, local[0] + box.extent[0]);
  }
  if (initialize_first) nn::initialize(one, {.seed = 6});
  one.p.shard({.spec = {.global_shape = shape, .boxes = boxes, .sharded_axes = {"data"}},
               .mesh = nn::local_mesh(),
               .local_shape = local,
               .padded_rows = local[0] + 1},
              std::make_shared<FakeOwner>("g"));
  if (!initialize_first) nn::initialize(one, {.seed = 6});
  return values(one.p.local().tensor());
}

std::vector<double> box_of(const std::vector<double>& whole, const Shape& shape,
                           const nn::ShardBox& box) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < box.extent[0]; ++i) {
    for (std::int64_t j = 0; j < box.extent[1]; ++j) {
      out.push_back(
          whole[static_cast<std::size_t>((box.offset[0] + i) * shape[1] + box.offset[1] + j)]);
    }
  }
  return out;
}

TEST_CASE("any split into boxes holds the values of the whole") {
  const Shape shape{11, 7};
  using Boxes = std::vector<nn::ShardBox>;
  const std::vector<Boxes> splits{
      {{{0, 0}, {11, 7}}},  // all of it
      {{{0, 0}, {4, 7}}},
      {{{4, 0}, {4, 7}}},
      {{{8, 0}, {3, 7}}},  // rows
      {{{11, 0}, {0, 7}}},
      {},                                                       // nothing
      {{{0, 2}, {11, 3}}},                                      // columns
      {{{3, 5}, {4, 2}}},                                       // a block
      {{{1, 0}, {2, 7}}, {{6, 0}, {3, 7}}, {{10, 0}, {1, 7}}},  // strided rows
  };
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const auto whole = initial(shape, dtype, nn::init::normal(0, 1), {.seed = 6});
    for (const Boxes& boxes : splits) {
      std::vector<double> expected;
      for (const nn::ShardBox& box : boxes) {
        for (double v : box_of(whole, shape, box)) expected.push_back(v);
      }
      CHECK(initial_boxes(shape, boxes, dtype, false) == expected);
      CHECK(initial_boxes(shape, boxes, dtype, true) == expected);
    }
  }
}

TEST_CASE("a model on the null device is planned without bytes") {
  nn::Linear layer({.in = 3, .out = 2});
  nn::initialize(layer, {.device = kNull});
  CHECK(layer.weight().local().device() == kNull);
  CHECK(layer.weight().is_materialized());
}

}  // namespace
}  // namespace tessera
