#include "tessera/nn/parameter.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::ParameterState;
using testing::FakeOwner;
using testing::row_sharding;
using testing::thrown;
using testing::values;

Parameter make(const Shape& shape, DType dtype = DType::kF64) {
  return Parameter({.shape = shape, .dtype = dtype, .init = nn::init::uniform(-1, 1)});
}

std::vector<double> rows_of(const std::vector<double>& whole, std::int64_t width,
                            std::int64_t first, std::int64_t rows) {
  return {whole.begin() + first * width, whole.begin() + (first + rows) * width};
}

TEST_CASE("a parameter needs a floating dtype, an initializer and a shape") {
  CHECK(thrown<InvalidArgument>([] {
          Parameter({.shape = {2}, .dtype = DType::kI64, .init = nn::init::zeros()});
        }) == "[nn.Parameter] a parameter is floating, i64 is not: use f32 or f64");
  CHECK(thrown<InvalidArgument>([] { Parameter({.shape = {2}, .init = {}}); }) ==
        "[nn.Parameter] a parameter of shape [2] needs an initializer, for instance init::zeros()");
  CHECK(thrown<InvalidArgument>([] { Parameter({.shape = {-1}, .init = nn::init::zeros()}); }) ==
        "[nn.Parameter] shape [-1] has a negative extent");
}

TEST_CASE("nothing is allocated before materialize, and all but shapes is refused") {
  MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current()[MemoryCategory::kParameter];
  Parameter p = make({3, 5});
  CHECK(memory.current()[MemoryCategory::kParameter] == before);
  CHECK_FALSE(p.is_materialized());
  CHECK(p.shape() == Shape{3, 5});
  CHECK(p.spec() == nn::ShardSpec::whole({3, 5}));
  CHECK(p.state() == ParameterState::kFull);
  CHECK(p.mesh() == nn::local_mesh());
  CHECK_FALSE(p.grad().defined());
  const std::string unnamed =
      "[nn.Parameter] parameter of shape [3, 5] has no elements yet: call nn::initialize(model), "
      "or load a checkpoint; if that was done, register its module in the model";
  CHECK(thrown<StateError>([&] { p.local(); }) == unnamed);
  CHECK(thrown<StateError>([&] { p.value(); }) == unnamed);
  p.set_name("up.weight");
  const std::string named =
      "[nn.Parameter] parameter \"up.weight\" has no elements yet: call nn::initialize(model), or "
      "load a checkpoint; if that was done, register its module in the model";
  CHECK(thrown<StateError>([&] { p.reset({}); }) == named);
  CHECK(thrown<StateError>([&] { p.padded_local(); }) == named);
  CHECK(thrown<StateError>([&] { p.set_grad(zeros({3, 5})); }) == named);

  p.materialize(default_device());
  CHECK(memory.current()[MemoryCategory::kParameter] ==
        before + counted_bytes(default_device().type, 3 * 5 * 8));
  CHECK(p.local().tensor().storage().name() == "up.weight");
  const auto storage = p.local().tensor().storage();
  p.materialize(default_device());
  CHECK(p.local().tensor().storage() == storage);
}

TEST_CASE("until sharded, local and value are one leaf; handles share everything") {
  Parameter p = make({2, 2});
  Parameter q = p;
  q.materialize(default_device());
  p.reset({.value = 5});
  CHECK(p.same_as(q));
  CHECK(p.id() == q.id());
  CHECK(p.local().same_as(p.value()));
  CHECK(p.local().same_as(q.local()));
  CHECK(p.requires_grad());
  backward(sum(square(p.value())));
  const std::vector<double> weights = values(q.local().tensor());
  const std::vector<double> gradient = values(q.grad());
  for (std::size_t i = 0; i < 4; ++i) CHECK(gradient[i] == 2 * weights[i]);
  q.zero_grad();
  CHECK_FALSE(p.grad().defined());
  p.set_requires_grad(false);
  CHECK_FALSE(q.value().requires_grad());
}

TEST_CASE("in operations a parameter is its value") {
  Parameter p = make({2, 2});
  CHECK(thrown<StateError>([&] { relu(p); }).find("has no elements yet") != std::string::npos);
  p.materialize(default_device());
  p.reset({.value = 5});
  const Variable same = p;
  CHECK(same.same_as(p.value()));
  const Variable x(full({2, 2}, 3, {.dtype = DType::kF64}));
  const auto agree = [](const Variable& a, const Variable& b) {
    return values(a.tensor()) == values(b.tensor());
  };
  CHECK(agree(p + 1.0, p.value() + 1.0));
  CHECK(agree(2 * p, 2 * p.value()));
  CHECK(agree(p - p, p.value() - p.value()));
  CHECK(agree(p * x.tensor(), p.value() * x.tensor()));
  CHECK(agree(nn::mse_loss(x, p), nn::mse_loss(x, p.value())));
  CHECK(agree(cat({p, x}, 0), cat({p.value(), x}, 0)));
  backward(sum(matmul(x / p, p)));
  const std::vector<double> gradient = values(p.grad());
  p.zero_grad();
  backward(sum(matmul(x / p.value(), p.value())));
  CHECK(gradient == values(p.grad()));
}

TEST_CASE("const handles, as lists of parameters give them, are worked with without a copy") {
  const Parameter p = make({2, 3});
  p.set_name("w");
  p.add_tag("no_decay");
  p.set_init(nn::init::constant(2));
  p.set_requires_grad(false);
  p.materialize(default_device());
  p.reset({.value = 1});
  CHECK(values(p.local().tensor()) == std::vector<double>(6, 2.0));
  p.set_grad(ones({2, 3}, {.dtype = DType::kF64}));
  p.zero_grad();
  p.to(default_device(), DType::kF32);
  CHECK(p.dtype() == DType::kF32);
  CHECK_FALSE(p.requires_grad());
  CHECK(p.has_tag("no_decay"));
}

TEST_CASE("a deferred parameter, sharded, holds only its padded rows") {
  MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current()[MemoryCategory::kParameter];
  Parameter p = make({10, 3});
  p.set_name("w");
  p.shard(row_sharding({10, 3}, 8, 2, 4), std::make_shared<FakeOwner>("block"));
  CHECK(memory.current()[MemoryCategory::kParameter] == before);
  p.materialize(default_device());
  CHECK(memory.current()[MemoryCategory::kParameter] ==
        before + counted_bytes(default_device().type, 4 * 3 * 8));
  CHECK(p.shape() == Shape{10, 3});
  CHECK(p.local().shape() == Shape{2, 3});
  CHECK(p.padded_local().shape() == Shape{4, 3});
  CHECK(rows_of(values(p.padded_local()), 3, 2, 2) == std::vector<double>(6, 0.0));
  CHECK(p.padded_local().storage() == p.local().tensor().storage());
  const auto version = p.padded_local().version();
  p.reset({.value = 1});
  CHECK(p.padded_local().version() > version);
  CHECK(rows_of(values(p.padded_local()), 3, 0, 2) == values(p.local().tensor()));
  CHECK(rows_of(values(p.padded_local()), 3, 2, 2) == std::vector<double>(6, 0.0));
}

TEST_CASE("a materialised parameter is cut down to its rows, and the rest is freed") {
  MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current()[MemoryCategory::kParameter];
  for (const auto& [first, rows] :
       std::vector<std::pair<int, int>>{{0, 4}, {4, 4}, {8, 2}, {10, 0}}) {
    Parameter p = make({10, 3});
    p.materialize(default_device());
    p.reset({.value = 9});
    const Variable leaf = p.value_leaf();
    const std::vector<double> whole = values(p.local().tensor());
    p.set_grad(mul(p.local().tensor(), 2.0));
    p.shard(row_sharding({10, 3}, first, rows, 4), std::make_shared<FakeOwner>("block"));
    CHECK(memory.current()[MemoryCategory::kParameter] ==
          before + counted_bytes(default_device().type, 4 * 3 * 8));
    CHECK(values(p.local().tensor()) == rows_of(whole, 3, first, rows));
    std::vector<double> gradient = rows_of(whole, 3, first, rows);
    for (double& g : gradient) g *= 2;
    CHECK(values(p.grad()) == gradient);
    CHECK(p.value_leaf().same_as(leaf));
    CHECK_FALSE(p.local().same_as(leaf));
    CHECK_FALSE(leaf.grad().defined());
    CHECK(p.local().requires_grad());
  }
  CHECK(memory.current()[MemoryCategory::kParameter] == before);
}

TEST_CASE("access to value follows the state, not the world size") {
  Parameter p = make({4});
  p.set_name("blocks.3.scale");
  auto owner = std::make_shared<FakeOwner>("blocks.3");
  p.shard(row_sharding({4}, 0, 4, 4), owner);  // a world of one
  p.materialize(default_device());
  CHECK(p.state() == ParameterState::kSharded);
  CHECK(thrown<StateError>([&] { p.value(); }) ==
        "[nn.Parameter] value() of parameter \"blocks.3.scale\" is not readable: it is sharded "
        "(group blocks.3): call "
        "its module, or hold a FullParameters guard");
  p.set_state(ParameterState::kPostForward);
  CHECK(thrown<StateError>([&] { p.value(); }).find("it is post_forward (group blocks.3)") !=
        std::string::npos);
  p.value_leaf().bind(p.local().tensor().detached_version());
  p.set_state(ParameterState::kFull);
  CHECK(p.value().same_as(p.value_leaf()));
  CHECK(p.value().shape() == Shape{4});
  p.set_state(ParameterState::kSharded);
  CHECK(p.local().numel() == 4);

  CHECK(p.owner() == owner.get());
  owner.reset();
  CHECK(p.owner() == nullptr);  // the handle does not keep its owner alive
  CHECK(thrown<StateError>([&] { p.value(); }).find("(group blocks.3)") != std::string::npos);
}

TEST_CASE(
    "gradients over local() go to grad(), also while sharded; requires_grad reaches both leaves") {
  Parameter p = make({4, 2});
  p.shard(row_sharding({4, 2}, 1, 2, 2), std::make_shared<FakeOwner>("g"));
  p.materialize(default_device());
  p.reset({.value = 2});
  backward(sum(square(p.local())));
  std::vector<double> expected = values(p.local().tensor());
  for (double& e : expected) e *= 2;
  CHECK(values(p.grad()) == expected);
  p.set_requires_grad(false);
  CHECK_FALSE(p.local().requires_grad());
  CHECK_FALSE(p.value_leaf().requires_grad());
}

TEST_CASE("zero_grad refuses while unreduced gradients wait") {
  Parameter p = make({4});
  p.set_name("w");
  auto owner = std::make_shared<FakeOwner>("root");
  p.shard(row_sharding({4}, 0, 2, 2), owner);
  p.materialize(default_device());
  p.set_grad(ones({2}, {.dtype = DType::kF64}));
  owner->pending = true;
  CHECK(thrown<StateError>([&] { p.zero_grad(); }) ==
        "[nn.Parameter] zero_grad() of parameter \"w\": gradients of group root wait to be "
        "reduced: run a backward that "
        "reduces, or discard_pending_gradients()");
  CHECK(p.grad().defined());
  owner->pending = false;
  p.zero_grad();
  CHECK_FALSE(p.grad().defined());
  CHECK(thrown<InvalidArgument>([&] {
          p.set_grad(ones({4}, {.dtype = DType::kF64}));
        }).find("[2]") != std::string::npos);
}

TEST_CASE("a sharding that does not fit is refused") {
  const auto owner = std::make_shared<FakeOwner>("g");
  const auto refused = [&](const Shape& shape, const nn::Sharding& sharding) {
    Parameter p = make(shape);
    p.set_name("w");
    return thrown<InvalidArgument>([&] { p.shard(sharding, owner); });
  };
  const nn::Sharding good = row_sharding({6, 2}, 2, 3, 3);
  nn::Sharding s = good;
  s.mesh = nullptr;
  CHECK(refused({6, 2}, s) == "[nn.Parameter] parameter \"w\": a sharding needs a mesh");
  CHECK(refused({5, 2}, good) ==
        "[nn.Parameter] parameter \"w\" of shape [5, 2] cannot be sharded as [6, 2]");
  s = good;
  s.local_shape = {3};
  CHECK(refused({6, 2}, s) ==
        "[nn.Parameter] parameter \"w\": the boxes are [3, 2] together, local() is [3]");
  s = good;
  s.spec.boxes[0].offset = {4, 0};
  CHECK(refused({6, 2}, s) ==
        "[nn.Parameter] parameter \"w\": box [3, 2] at [4, 0] is not a part of [6, 2] as wide as "
        "the others");
  s = good;
  s.spec.boxes[0].extent = {3, 1};
  CHECK(refused({6, 2}, s) ==
        "[nn.Parameter] parameter \"w\": the boxes are [3, 1] together, local() is [3, 2]");
  s.spec.boxes.push_back({.offset = {0, 0}, .extent = {1, 2}});
  CHECK(refused({6, 2}, s) ==
        "[nn.Parameter] parameter \"w\": box [1, 2] at [0, 0] is not a part of [6, 2] as wide as "
        "the others");
  s.spec.boxes.clear();
  CHECK(refused({6, 2}, s) ==
        "[nn.Parameter] parameter \"w\": the boxes are [0, 2] together, local() is [3, 2]");
  s = good;
  s.local_shape = {2, 2};
  CHECK(refused({6, 2}, s) ==
        "[nn.Parameter] parameter \"w\": the boxes are [3, 2] together, local() is [2, 2]");
  s = good;
  s.padded_rows = 2;
  CHECK(refused({6, 2}, s) ==
        "[nn.Parameter] parameter \"w\": padded_rows is 2, local() has 3 rows");
  CHECK(refused({},
                {.spec = nn::ShardSpec::whole({}), .mesh = nn::local_mesh(), .local_shape = {}}) ==
        "[nn.Parameter] parameter \"w\" has 0 dims; sharding needs at least 1: reshape it to [1]");

  Parameter p = make({6, 2});
  p.set_name("w");
  CHECK(thrown<InvalidArgument>([&] { p.shard(good, nullptr); }) ==
        "[nn.Parameter] parameter \"w\": shard() needs an owner");
  p.shard(good, owner);
  CHECK(thrown<StateError>([&] { p.shard(good, std::make_shared<FakeOwner>("other")); }) ==
        "[nn.Parameter] parameter \"w\" belongs to group g already, and group other wants it: "
        "shard it once");
}

TEST_CASE("another initializer takes effect at the next reset") {
  Parameter p({.shape = {2, 3}, .init = nn::init::ones()});
  p.materialize(default_device());
  p.reset({});
  Parameter(p).set_init(nn::init::constant(4));
  CHECK(values(p.local().tensor()) == std::vector<double>(6, 1.0));
  p.reset({});
  CHECK(values(p.local().tensor()) == std::vector<double>(6, 4.0));
  CHECK(thrown<InvalidArgument>([&] { p.set_init({}); }) ==
        "[nn.Parameter] parameter of shape [2, 3] needs an initializer, for instance "
        "init::zeros()");
}

TEST_CASE("state names") {
  CHECK(std::string(nn::parameter_state_name(ParameterState::kSharded)) == "sharded");
  CHECK(std::string(nn::parameter_state_name(ParameterState::kPostForward)) == "post_forward");
  CHECK(std::string(nn::parameter_state_name(ParameterState::kFull)) == "full");
}

TEST_CASE("the local mesh has one axis of one rank") {
  const auto mesh = nn::local_mesh();
  CHECK(mesh->axes() == std::vector<std::string>{"data"});
  CHECK(mesh->size("data") == 1);
  CHECK(mesh->rank("data") == 0);
  const Tensor x = arange(3, {.dtype = DType::kF64});
  mesh->all_reduce(x, "data", nn::MeshReduce::kSum);
  CHECK(values(mesh->all_gather(x, "data")) == std::vector<double>{0, 1, 2});
  CHECK(thrown<InvalidArgument>([&] { mesh->all_gather(ones({}), "data"); }) ==
        "[nn.local_mesh] a 0-d tensor has no dim 0 to concatenate along; view it as [1]");
  CHECK(thrown<InvalidArgument>([&] { mesh->size("model"); }) ==
        "[nn.local_mesh] unknown axis \"model\"; there is \"data\"");
}

TEST_CASE("a cast copy is lent, written and outdated by the next write") {
  Parameter p = make({3, 2}, DType::kF32);
  CHECK_FALSE(p.cast_copy().defined());
  CHECK_FALSE(p.has_current_cast_copy());
  p.materialize(default_device());
  p.reset({.value = 1});
  CHECK(thrown<StateError>([&] { p.note_cast_copy(); }) ==
        "[nn.Parameter] parameter of shape [3, 2] has no cast copy");
  CHECK(thrown<InvalidArgument>([&] {
          p.set_cast_copy(zeros({2, 3}));
        }) ==
        "[nn.Parameter] the cast copy of parameter of shape [3, 2] is [2, 3], local() is [3, 2]");
  const Tensor copy = cast(p.local().tensor(), DType::kBF16);
  p.set_cast_copy(copy);
  CHECK_FALSE(p.has_current_cast_copy());
  p.note_cast_copy();
  CHECK(p.has_current_cast_copy());
  p.reset({.value = 2});
  CHECK_FALSE(p.has_current_cast_copy());
  p.set_cast_copy(copy, /*is_current=*/true);
  CHECK(p.has_current_cast_copy());
  CHECK(p.cast_copy().storage() == copy.storage());
  p.set_cast_copy({});
  CHECK_FALSE(p.cast_copy().defined());
  CHECK_FALSE(p.has_current_cast_copy());
}

}  // namespace
}  // namespace tessera
