// Moving and converting a model, apply, tags, choosing by name, and the table of a model.

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/freeze.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/name_pattern.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/summary.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using testing::FakeOwner;
using testing::thrown;
using testing::values;

class Small final : public nn::Layer<Small> {
 public:
  Small()
      : up_({.in = 5, .out = 8}),
        down_({.in = 8, .out = 2, .dtype = DType::kF64}),
        head_({.in = 5, .out = 8, .bias = false}),
        steps_({.shape = {}, .dtype = DType::kI64, .init = nn::init::zeros()}),
        table_({.shape = {3}, .init = nn::init::ones()}) {
    tie(up_.weight(), head_.weight());
    register_module("up", up_);
    register_module("down", down_);
    register_module("head", head_);
    register_buffer("steps", steps_);
    register_buffer("table", table_);
  }
  Variable forward(const Variable& x) { return down_(up_(x)); }
  nn::Linear up_, down_, head_;
  nn::Buffer steps_, table_;
};

TEST_CASE("to converts floating parameters, gradients and buffers in place of their handles") {
  Small model;
  nn::initialize(model);
  const nn::Parameter handle = model.up_.weight();
  const auto before = values(handle.local().tensor());
  nn::Parameter(handle).set_grad(full({8, 5}, 0.5));
  model.to(DType::kF64);
  CHECK(handle.dtype() == DType::kF64);
  CHECK(handle.local().dtype() == DType::kF64);
  CHECK(values(handle.value().tensor()) == before);
  CHECK(handle.grad().dtype() == DType::kF64);
  CHECK(values(handle.grad()) == std::vector<double>(40, 0.5));
  CHECK(model.table_.dtype() == DType::kF64);
  CHECK(values(model.table_.tensor()) == std::vector<double>(3, 1.0));
  CHECK(model.steps_.dtype() == DType::kI64);
  CHECK(model.steps_.tensor().item<std::int64_t>() == 0);
  const Variable x(full({1, 5}, 1, {.dtype = DType::kF64}));
  handle.local().tensor();
  nn::Parameter(handle).zero_grad();
  backward(sum(model(x)));
  CHECK(handle.grad().dtype() == DType::kF64);
  model.half();
  CHECK(handle.local().dtype() == DType::kF16);
  model.bfloat16();
  CHECK(handle.local().dtype() == DType::kBF16);
  CHECK(model.table_.tensor().dtype() == DType::kBF16);
}

TEST_CASE("a buffer built with keep_dtype is moved and not converted") {
  struct Table final : nn::Layer<Table> {
    Table() : table_({.shape = {3}, .init = nn::init::ones(), .keep_dtype = true}) {
      register_buffer("table", table_);
    }
    void forward() {}
    nn::Buffer table_;
  };
  Table model;
  CHECK(model.table_.keeps_dtype());
  CHECK_FALSE(Small().table_.keeps_dtype());
  nn::initialize(model);
  model.to(DType::kBF16);
  CHECK(values(model.table_.tensor()) == std::vector<double>(3, 1.0));
  model.to(kNull, DType::kF64);
  CHECK(model.table_.dtype() == DType::kF32);
  CHECK(model.table_.tensor().device() == kNull);
}

TEST_CASE("an optimizer built before a conversion goes on with the converted parameters") {
  nn::Linear layer({.in = 2, .out = 1, .bias = false});
  nn::initialize(layer);
  nn::optim::SGD optimizer(layer.parameters(), {.lr = 0.5});
  layer.to(DType::kF64);
  fill_(layer.weight().local().tensor(), 1);
  layer.weight().set_grad(full({1, 2}, 1, {.dtype = DType::kF64}));
  optimizer.step();
  CHECK(values(layer.weight().local().tensor()) == std::vector<double>{0.5, 0.5});
}

TEST_CASE("what is not materialised is born in the new dtype") {
  Small model;
  model.to(kNull, DType::kF64);
  CHECK(model.up_.weight().dtype() == DType::kF64);
  nn::initialize(model);
  CHECK(model.up_.weight().local().dtype() == DType::kF64);
  CHECK(model.up_.weight().local().device() == default_device());  // initialize says where
  CHECK(model.table_.tensor().dtype() == DType::kF64);
}

TEST_CASE("to the null device goes the shape alone, and nothing comes back") {
  Small model;
  nn::initialize(model);
  model.up_.weight().set_grad(full({8, 5}, 1));
  model.to(kNull);
  CHECK(model.up_.weight().local().device() == kNull);
  CHECK(model.up_.weight().grad().device() == kNull);
  CHECK(model.steps_.tensor().device() == kNull);
  CHECK(thrown<StateError>([&] { model.to(kCpu); }) ==
        "[to_device] a tensor of shape [8, 5] on the null device has no elements to move to cpu");
}

TEST_CASE("a move that fails leaves parameter and buffer as they were") {
  Small model;
  nn::initialize(model, {.device = kNull});
  model.up_.weight().set_grad(full({8, 5}, 1, {.device = kNull}));
  CHECK_THROWS_AS(model.up_.weight().to(kCpu, DType::kF64), StateError);
  CHECK(model.up_.weight().dtype() == DType::kF32);
  CHECK(model.up_.weight().local().device() == kNull);
  CHECK(model.up_.weight().grad().device() == kNull);
  CHECK_THROWS_AS(model.table_.to(kCpu, DType::kF64), StateError);
  CHECK(model.table_.dtype() == DType::kF32);
  CHECK(model.table_.tensor().device() == kNull);
}

TEST_CASE("what to refuses") {
  Small model;
  CHECK(thrown<InvalidArgument>([&] { model.to(DType::kI32); }) ==
        "[nn.to] Small cannot become i32: a model is converted to a floating dtype");
  nn::Parameter p({.shape = {4, 2}, .init = nn::init::zeros()});
  CHECK(thrown<InvalidArgument>([&] { p.to(kCpu, DType::kI64); }) ==
        "[nn.Parameter] parameter of shape [4, 2] cannot become i64: a parameter is floating");
  const auto owner = std::make_shared<FakeOwner>("g");
  p.shard(testing::row_sharding({4, 2}, 0, 2, 2), owner);
  p.to(kCpu, DType::kF64);  // its owner is asked first
  CHECK(owner->conversions == 1);
  CHECK(p.dtype() == DType::kF64);
  CHECK(thrown<InvalidArgument>([] { to_device(Tensor(), kNull); }) ==
        "[to_device] the tensor is undefined");
}

TEST_CASE("apply comes to children before their parents, once each") {
  Small model;
  std::string order;
  model.apply([&order](nn::Module& module) { order += module.type_name() + " "; });
  CHECK(order == "Linear Linear Linear Small ");
}

TEST_CASE("tags belong to the parameter, whatever the handle") {
  Small model;
  nn::Parameter handle = model.up_.weight();
  handle.add_tag("expert");
  handle.add_tag("expert");
  CHECK(model.head_.weight().has_tag("expert"));
  CHECK_FALSE(model.up_.bias().has_tag("expert"));
  CHECK(handle.tags() == std::set<std::string>{"expert"});
}

TEST_CASE("patterns: a star stays in its level, two cross dots") {
  using nn::matches;
  CHECK(matches("blocks.0.norm.weight", "blocks.*.norm.*"));
  CHECK(matches("blocks.11.norm.bias", "blocks.*.norm.*"));
  CHECK_FALSE(matches("blocks.1.mlp.norm.bias", "blocks.*.norm.*"));
  CHECK(matches("blocks.1.mlp.norm.bias", "blocks.**.norm.*"));
  CHECK(matches("a.b.c", "**"));
  CHECK(matches("", "**"));
  CHECK(matches("", "*"));
  CHECK(matches("", ""));
  CHECK_FALSE(matches("a", ""));
  CHECK_FALSE(matches("a.b", "*"));
  CHECK(matches("bias", "**bias"));
  CHECK_FALSE(matches("bias", "**.bias"));
  CHECK(matches("x.bias", "**.bias"));
  CHECK(matches("layers.3.w1", "layers.?.w*"));
  CHECK_FALSE(matches("layers.10.w1", "layers.?.w*"));
  CHECK_FALSE(matches("a.b", "a?b"));
  CHECK(matches("aXXbXXc", "a*b*c"));
  CHECK_FALSE(matches("aXXbXX", "a*b*c"));
  CHECK(matches("w", "***"));
}

TEST_CASE("freeze and unfreeze choose by name and take effect at the next forward") {
  Small model;
  nn::initialize(model);
  model.to(DType::kF32);
  CHECK(nn::freeze(model, "**") == 4);  // the tied weight once
  CHECK(nn::unfreeze(model, "down.*") == 2);
  backward(sum(model(Variable(full({2, 5}, 1)))));
  CHECK_FALSE(model.up_.weight().grad().defined());
  CHECK(model.down_.weight().grad().defined());
  CHECK(
      thrown<InvalidArgument>([&] { nn::freeze(model, "dwn.*"); }) ==
      "[nn.freeze] \"dwn.*\" covers none of the 4 parameters of Small, the first is \"up.weight\": "
      "* stays inside one level, ** crosses dots");
  CHECK_THROWS_AS(nn::unfreeze(model, "weight"), InvalidArgument);
}

TEST_CASE("the table of a model") {
  Small model;
  nn::freeze(model, "up.weight");
  CHECK(nn::summary(model) ==
        "module  type    parameters\n"
        "Small   Small            0  buffer steps [] i64, buffer table [3]\n"
        "  up    Linear          48  weight [8, 5] frozen, bias [8]\n"
        "  down  Linear          18  weight [2, 8] f64, bias [2] f64\n"
        "  head  Linear           0  weight [8, 5] tied to up.weight\n"
        "66 parameters, 26 trainable, 336 bytes; 2 buffers, 20 bytes\n");
}

}  // namespace
}  // namespace tessera
