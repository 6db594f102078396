#include "tessera/nn/module.h"

#include <catch2/catch.hpp>
#include <optional>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::NamedModule;
using nn::NamedParameter;
using testing::thrown;

class Block final : public nn::Layer<Block> {
 public:
  Block()
      : scale_({.shape = {2}, .init = nn::init::ones()}),
        up_({.in = 2, .out = 3}),
        down_({.in = 3, .out = 2}) {
    register_module("up", up_);  // before the parameter: own parameters come first all the same
    register_parameter("scale", scale_);
    register_module("down", down_);
  }
  Variable forward(const Variable& x) { return down_(up_(x)); }
  nn::Parameter scale_;
  nn::Linear up_, down_;
};

class Model final : public nn::Layer<Model> {
 public:
  Model() {
    register_module("first", first_);
    register_module("second", second_);
    register_module("again", first_);
  }
  Variable forward(const Variable& x) { return second_(first_(x)); }
  Block first_, second_;
};

std::vector<std::string> names(const std::vector<NamedParameter>& parameters) {
  std::vector<std::string> out;
  for (const auto& named : parameters) out.push_back(named.name);
  return out;
}

std::vector<std::string> names(const std::vector<NamedModule>& modules) {
  std::vector<std::string> out;
  for (const auto& named : modules) out.push_back(named.name + ":" + named.module->type_name());
  return out;
}

using Names = std::vector<std::string>;

class OfAnother final : public nn::Layer<OfAnother> {
 public:
  OfAnother() {
    nn::Linear gone({.in = 2, .out = 3});
    register_module("head", gone);
  }
  Variable forward(const Variable& x) { return x; }
};

TEST_CASE("a registered module that is gone is an error, not a crash") {
  OfAnother model;
  CHECK(thrown<StateError>([&] { nn::initialize(model); }) ==
        "[nn.Module] the module that was registered as \"head\" is gone: make it a member of "
        "OfAnother, or let an nn::ModuleList own it");
}

TEST_CASE("names go depth first in registration order, each object once under its first name") {
  Model model;
  CHECK(names(model.named_parameters()) ==
        Names{"first.scale", "first.up.weight", "first.up.bias", "first.down.weight",
              "first.down.bias", "second.scale", "second.up.weight", "second.up.bias",
              "second.down.weight", "second.down.bias"});
  CHECK(names(model.named_modules()) == Names{":Model", "first:Block", "first.up:Linear",
                                              "first.down:Linear", "second:Block",
                                              "second.up:Linear", "second.down:Linear"});
  CHECK(names(model.children()) == Names{"first:Block", "second:Block", "again:Block"});
  CHECK(model.own_parameters().empty());
  CHECK(names(model.first_.own_parameters()) == Names{"scale"});
  CHECK(model.parameters().size() == 10);
}

TEST_CASE("tied parameters appear once, under the first name, also when tied after registration") {
  Model model;
  tie(model.first_.up_.weight(), model.second_.up_.weight());
  CHECK(names(model.named_parameters()) == Names{"first.scale", "first.up.weight", "first.up.bias",
                                                 "first.down.weight", "first.down.bias",
                                                 "second.scale", "second.up.bias",
                                                 "second.down.weight", "second.down.bias"});
  CHECK(model.first_.up_.weight().same_as(model.second_.up_.weight()));
  tie(model.first_.up_.weight(), model.second_.up_.weight());  // a no-op
  nn::initialize(model);
  CHECK(model.second_.up_.weight().name() == "first.up.weight");
  CHECK(thrown<StateError>([&] { tie(model.first_.up_.bias(), model.second_.up_.bias()); }) ==
        "[nn.tie] parameter \"first.up.bias\" is materialised already: tie before fully_shard and "
        "initialize");
}

TEST_CASE("tie refuses other shapes, other dtypes and handles that would be left behind") {
  Block block;
  CHECK(thrown<InvalidArgument>([&] { tie(block.up_.weight(), block.down_.weight()); }) ==
        "[nn.tie] parameter \"weight\" is f32 [3, 2], parameter \"weight\" is f32 [2, 3]: tied "
        "parameters agree in shape and dtype");
  nn::Linear wide({.in = 2, .out = 3, .dtype = DType::kF64});
  CHECK(thrown<InvalidArgument>([&] { tie(block.up_.weight(), wide.weight()); }).find("f64") !=
        std::string::npos);
  nn::Linear reference({.in = 2, .out = 3});
  const auto held = reference.parameters();
  CHECK(thrown<StateError>([&] { tie(block.up_.weight(), reference.weight()); }) ==
        "[nn.tie] 1 other handles to parameter \"weight\" exist: tie the modules' own members, "
        "before anything copies them");
  auto owner = std::make_shared<testing::FakeOwner>("g");
  block.up_.weight().shard(testing::row_sharding({3, 2}, 0, 2, 2), owner);
  nn::Linear third({.in = 2, .out = 3});
  CHECK(thrown<StateError>([&] {
          tie(block.up_.weight(), third.weight());
        }).find("is sharded already") != std::string::npos);
}

class Registrations final : public nn::Layer<Registrations> {
 public:
  void forward() {}
  using Module::register_module;
  using Module::register_parameter;
  nn::Linear a_{{.in = 1, .out = 1}}, b_{{.in = 1, .out = 1}};
  nn::Parameter p_{{.shape = {1}, .init = nn::init::zeros()}};
};

TEST_CASE("registration refuses names that are empty, dotted or taken") {
  Registrations module;
  module.register_module("a", module.a_);
  CHECK(thrown<InvalidArgument>([&] { module.register_module("", module.b_); }) ==
        "[nn.register_module] a member of Registrations needs a name");
  CHECK(thrown<InvalidArgument>([&] { module.register_parameter("x.y", module.p_); }) ==
        "[nn.register_parameter] name \"x.y\" of a member of Registrations has a dot; dots join "
        "the names of levels");
  CHECK(thrown<InvalidArgument>([&] { module.register_parameter("a", module.p_); }) ==
        "[nn.register_parameter] Registrations has a member \"a\" already: choose another name");
  module.register_parameter("p", module.p_);
  CHECK(thrown<InvalidArgument>([&] {
          module.register_module("p", module.b_);
        }).find("member \"p\" already") != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] { module.register_module("self", module); }) ==
        "[nn.register_module] Registrations cannot be its own child \"self\"");
}

TEST_CASE("train and eval reach every module below") {
  Model model;
  CHECK(model.is_training());
  model.eval();
  for (const auto& named : model.named_modules()) CHECK_FALSE(named.module->is_training());
  model.first_.train();
  CHECK(model.first_.up_.is_training());
  CHECK_FALSE(model.second_.up_.is_training());
}

TEST_CASE("an extension lives as long as its module, one per type") {
  auto number = std::make_shared<int>(7);
  std::weak_ptr<int> watch = number;
  {
    Block block;
    CHECK(block.attached<int>() == nullptr);
    block.attach(std::move(number));
    CHECK(*block.attached<int>() == 7);
    CHECK(block.attached<double>() == nullptr);
    block.attach(std::make_shared<int>(8));
    CHECK(*block.attached<int>() == 8);
    CHECK(watch.expired());
  }
}

struct ForgotModule final : nn::Layer<ForgotModule> {
  ForgotModule() {
    register_module("behind", behind);
    register_module("kept", kept);
    register_module("first", first);
  }
  Variable forward(const Variable& x) { return lost(x); }
  nn::Linear first{{.in = 1, .out = 1}}, kept{{.in = 1, .out = 1}}, lost{{.in = 1, .out = 1}};
  nn::Linear behind{{.in = 1, .out = 1}};
};
struct ForgotParameter final : nn::Layer<ForgotParameter> {
  Variable forward(const Variable& x) { return x; }
  nn::Parameter lost{{.shape = {3, 2}, .init = nn::init::zeros()}};
};
struct ForgotOptional final : nn::Layer<ForgotOptional> {
  ForgotOptional() { lost.emplace(nn::LinearOptions{.in = 1, .out = 1}); }
  Variable forward(const Variable& x) { return x; }
  std::optional<nn::Linear> lost;
};
struct HoldsHandle final : nn::Layer<HoldsHandle> {
  explicit HoldsHandle(const nn::Parameter& other) : handle(other) {}
  Variable forward(const Variable& x) { return x; }
  nn::Parameter handle;  // a copy of a parameter that is registered elsewhere
};

TEST_CASE("initialize finds members that were never registered") {
  ForgotModule module;
  CHECK(
      thrown<StateError>([&] { nn::initialize(module); }) ==
      "[nn.initialize] ForgotModule has a module of type Linear, declared after \"kept\", that was "
      "never registered: call register_module in its constructor");
  nn::Sequential outer;
  outer.add<Block>();
  outer.add<ForgotParameter>();
  CHECK(thrown<StateError>([&] {
          nn::initialize(outer);
        }).find("\"1\" (ForgotParameter) has a parameter of shape [3, 2] that was never") !=
        std::string::npos);
  ForgotOptional optional;
  CHECK(thrown<StateError>([&] { nn::initialize(optional); }).find("module of type Linear") !=
        std::string::npos);
}

TEST_CASE("initialize does not mind handles to parameters of others, nor modules around it") {
  Block block;
  HoldsHandle holder(block.scale_);
  nn::initialize(holder);
  nn::initialize(block);
  Model model;
  nn::initialize(model.first_);  // lies inside model, which is not registered anywhere
  nn::initialize(model);
  CHECK(block.scale_.is_materialized());
}

TEST_CASE("a type name is the class without namespaces, with its template arguments") {
  CHECK(nn::Linear({.in = 1, .out = 1}).type_name() == "Linear");
  CHECK(nn::detail::short_type_name(typeid(std::vector<Shape*>)).find("vector<tessera::Shape") ==
        0);
}

TEST_CASE("copy_state makes references and lists what differs") {
  Block from, to;
  nn::initialize(from, {.seed = 3});
  nn::copy_state(from, to);
  for (std::size_t i = 0; i < from.parameters().size(); ++i) {
    CHECK(testing::values(from.parameters()[i].local().tensor()) ==
          testing::values(to.parameters()[i].local().tensor()));
  }
  Block fresh;
  CHECK(thrown<StateError>([&] { nn::copy_state(fresh, to); }).find("has no elements yet") !=
        std::string::npos);

  nn::Sequential a, b;
  a.add<nn::Linear>({.in = 2, .out = 3});
  a.add<nn::Linear>({.in = 3, .out = 4, .bias = false});
  b.add<nn::Linear>({.in = 2, .out = 5, .bias = false});
  b.add<nn::Linear>({.in = 3, .out = 4});
  b.add<nn::Linear>({.in = 4, .out = 1, .bias = false});
  CHECK(thrown<InvalidArgument>([&] { nn::copy_state(a, b); }) ==
        "[nn.copy_state] Sequential and Sequential are not alike: \"0.bias\" only in the "
        "source; "
        "\"0.weight\" [3, 2] against [5, 2]; \"1.bias\" only in the target; \"2.weight\" only in "
        "the target");

  Block sharded;
  sharded.scale_.shard(testing::row_sharding({2}, 0, 1, 1),
                       std::make_shared<testing::FakeOwner>("g"));
  CHECK(thrown<InvalidArgument>([&] {
          nn::copy_state(from, sharded);
        }).find("\"scale\" sharded differently") != std::string::npos);
}

}  // namespace
}  // namespace tessera
