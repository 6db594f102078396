// A parameter cut in place: value and local stay one variable, of this rank's part; initial values,
// gradients and what was there before are that part's; sharding afterwards shards the part.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::ShardSpec;
using testing::FakeOwner;
using testing::thrown;
using testing::values;

Parameter make(const Shape& shape) {
  return Parameter({.shape = shape, .dtype = DType::kF64, .init = nn::init::uniform(-1, 1)});
}

ShardSpec spec_of(const Shape& global, std::vector<nn::ShardBox> boxes) {
  return {.global_shape = global, .boxes = std::move(boxes), .sharded_axes = {"tp"}};
}

Tensor numbers(const Shape& shape) {
  return arange(shape.numel(), {.dtype = DType::kF64}).view(shape);
}

// Columns 1 and 2 of [3, 4].
ShardSpec columns() { return spec_of({3, 4}, {{.offset = {0, 1}, .extent = {3, 2}}}); }

TEST_CASE("a cut parameter is its part, with the values of the whole") {
  Parameter whole = make({3, 4}), p = make({3, 4});
  const auto mesh = std::make_shared<testing::FakeMesh>(std::vector<std::string>{"tp"}, 2);
  p.cut(columns(), mesh);
  CHECK(p.shape() == Shape{3, 2});
  CHECK(p.spec() == columns());
  CHECK(p.value_spec() == columns());
  CHECK(p.mesh() == mesh);
  CHECK(p.state() == nn::ParameterState::kFull);
  CHECK(whole.value_spec() == ShardSpec::whole({3, 4}));
  for (Parameter* each : {&whole, &p}) {
    each->materialize(default_device());
    each->reset({.value = 5});
  }
  CHECK(p.local().same_as(p.value()));
  CHECK(p.padded_local().shape() == Shape{3, 2});
  CHECK(values(p.value().tensor()) == values(contiguous(whole.value().tensor().slice(1, 1, 3))));

  p.to(default_device(), DType::kF32);
  CHECK(p.value().shape() == Shape{3, 2});
  CHECK(p.value().dtype() == DType::kF32);
}

TEST_CASE("a materialised parameter is cut down, and its gradient; the leaf stays") {
  Parameter p = make({3, 4});
  p.materialize(default_device());
  copy_(p.local().tensor(), numbers({3, 4}));
  p.set_grad(numbers({3, 4}));
  const Variable leaf = p.value();
  p.cut(columns(), nn::local_mesh());
  CHECK(p.value().same_as(leaf));
  CHECK(values(p.value().tensor()) == std::vector<double>{1, 2, 5, 6, 9, 10});
  CHECK(values(p.grad()) == std::vector<double>{1, 2, 5, 6, 9, 10});
  backward(sum(square(p.value())));
  CHECK(values(p.grad()) == std::vector<double>{3, 6, 15, 18, 27, 30});
}

TEST_CASE("several boxes are rows one below the other, and may be cut again") {
  const ShardSpec stacked =
      spec_of({6, 2}, {{.offset = {1, 0}, .extent = {2, 2}}, {.offset = {4, 0}, .extent = {2, 2}}});
  Parameter p = make({6, 2});
  p.materialize(default_device());
  copy_(p.local().tensor(), numbers({6, 2}));
  p.cut(stacked, nn::local_mesh());
  CHECK(values(p.value().tensor()) == std::vector<double>{2, 3, 4, 5, 8, 9, 10, 11});
  const ShardSpec less =
      spec_of({6, 2}, {{.offset = {2, 1}, .extent = {1, 1}}, {.offset = {4, 1}, .extent = {2, 1}}});
  p.cut(less, nn::local_mesh());
  CHECK(values(p.value().tensor()) == std::vector<double>{5, 9, 11});
  p.cut(spec_of({6, 2}, {{.offset = {6, 1}, .extent = {0, 1}}}), nn::local_mesh());
  CHECK(p.shape() == Shape{0, 1});
}

TEST_CASE("what a cut left is sharded inside it") {
  const auto owner = std::make_shared<FakeOwner>("g");
  const nn::Sharding rows{.spec = spec_of({3, 4}, {{.offset = {2, 1}, .extent = {1, 2}}}),
                          .mesh = nn::local_mesh(),
                          .local_shape = {1, 2},
                          .padded_rows = 2};
  for (const bool materialized : {false, true}) {
    Parameter p = make({3, 4}), whole = make({3, 4});
    if (materialized) p.materialize(default_device());
    if (materialized) p.reset({.value = 5});
    p.cut(columns(), nn::local_mesh());
    p.shard(rows, owner);
    if (!materialized) p.materialize(default_device());
    if (!materialized) p.reset({.value = 5});
    whole.materialize(default_device());
    whole.reset({.value = 5});
    CHECK(p.shape() == Shape{3, 2});
    CHECK(p.value_spec() == columns());
    CHECK(p.spec() == rows.spec);
    CHECK(p.padded_local().shape() == Shape{2, 2});
    CHECK(values(p.local().tensor()) ==
          values(contiguous(whole.local().tensor().slice(0, 2, 3).slice(1, 1, 3))));
  }
  Parameter p = make({3, 4});
  p.set_name("w");
  p.cut(columns(), nn::local_mesh());
  nn::Sharding outside = rows;
  outside.spec.boxes[0].offset = {2, 0};
  CHECK(thrown<InvalidArgument>([&] { p.shard(outside, owner); }) ==
        "[nn.Parameter] parameter \"w\": box [1, 2] at [2, 0] is not a part of [3, 2] at [0, 1] as "
        "wide as the others");
}

TEST_CASE("cuts that cannot be are refused") {
  Parameter p = make({3, 4});
  p.set_name("w");
  CHECK(thrown<InvalidArgument>([&] { p.cut(columns(), nullptr); }) ==
        "[nn.Parameter] parameter \"w\": a cut needs a mesh");
  CHECK(thrown<InvalidArgument>([&] {
          p.cut(spec_of({3, 5}, {}), nn::local_mesh());
        }) == "[nn.Parameter] parameter \"w\" of shape [3, 4] cannot be sharded as [3, 5]");
  CHECK(thrown<InvalidArgument>([&] {
          p.cut(spec_of({3, 4}, {}), nn::local_mesh());
        }) == "[nn.Parameter] parameter \"w\": a cut needs a box, an empty one for nothing");
  CHECK(thrown<InvalidArgument>([&] {
          p.cut(spec_of({3, 4}, {{.offset = {0, 3}, .extent = {3, 2}}}), nn::local_mesh());
        }) ==
        "[nn.Parameter] parameter \"w\": box [3, 2] at [0, 3] is not a part of [3, 4] as wide as "
        "the others");
  CHECK(thrown<InvalidArgument>([&] { make({}).cut(ShardSpec::whole({}), nn::local_mesh()); }) ==
        "[nn.Parameter] parameter of shape [] has 0 dims; sharding needs at least 1: reshape it to "
        "[1]");
  const auto owner = std::make_shared<FakeOwner>("g");
  p.shard(testing::row_sharding({3, 4}, 0, 2, 2), owner);
  CHECK(thrown<StateError>([&] { p.cut(columns(), nn::local_mesh()); }) ==
        "[nn.Parameter] parameter \"w\" is sharded (group g): cut it before that");
}

TEST_CASE("tied parameters are cut alike") {
  Parameter a = make({4, 3}), b = make({4, 6}), c = make({4, 6});
  b.cut(spec_of({4, 6}, {{.offset = {0, 0}, .extent = {4, 3}}}), nn::local_mesh());
  c.cut(spec_of({4, 6}, {{.offset = {0, 0}, .extent = {4, 3}}}), nn::local_mesh());
  CHECK(thrown<InvalidArgument>([&] { nn::tie(a, b); }) ==
        "[nn.tie] parameter of shape [4, 3] and parameter of shape [4, 3] are cut differently: cut "
        "them alike, or tie before cutting");
  nn::tie(b, c);
  CHECK(b.same_as(c));
}

}  // namespace
}  // namespace tessera
