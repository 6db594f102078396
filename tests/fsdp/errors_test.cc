// Every error of the sharding layer, with its text; and the rules about who may read and write a
// parameter when.

#include <catch2/catch.hpp>

#include <functional>
#include <string>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// What `action` throws as E; a note when it throws nothing.
template <class E>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

template <class E>
void check_throws(RankTest& t, const std::string& text, const std::function<void()>& action) {
  const std::string message = message_of<E>(action);
  t.check(message.find(text) != std::string::npos, "expected \"{}\", got: {}", text, message);
}

/// Holds whatever parameters a test gives it.
class Holder final : public nn::Layer<Holder> {
 public:
  explicit Holder(std::vector<nn::ParameterOptions> options) {
    for (nn::ParameterOptions& o : options) {
      parameters_.push_back(std::make_unique<nn::Parameter>(std::move(o)));
      register_parameter("p" + std::to_string(parameters_.size() - 1), *parameters_.back());
    }
  }
  Variable forward(const Variable& x) { return x; }
  nn::Parameter& at(std::size_t i) { return *parameters_[i]; }

 private:
  std::vector<std::unique_ptr<nn::Parameter>> parameters_;
};

TESSERA_RANK_TEST("fsdp errors: wrong calls of fully_shard", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  check_throws<InvalidArgument>(t, "no mesh was given", [] {
    Chain model({});
    fsdp::fully_shard(model, {});
  });
  check_throws<StateError>(t, "Chain is sharded already; fully_shard can only be applied once",
                           [&] {
                             Chain model({});
                             fsdp::fully_shard(model, options);
                             fsdp::fully_shard(model, options);
                           });
  check_throws<InvalidArgument>(
      t, "parameter \"p1\" has 0 dims; sharding needs at least 1: reshape it to [1]", [&] {
        Holder holder(
            {{.shape = {3}, .init = nn::init::zeros()}, {.shape = {}, .init = nn::init::zeros()}});
        fsdp::fully_shard(holder, options);
      });
  check_throws<InvalidArgument>(t, "\"p0\" is f32 and \"p1\" is f64", [&] {
    Holder holder({{.shape = {3}, .init = nn::init::zeros()},
                   {.shape = {3}, .dtype = DType::kF64, .init = nn::init::zeros()}});
    fsdp::fully_shard(holder, options);
  });
  check_throws<StateError>(t, "no FSDP state on Chain", [] { fsdp::of(Chain({})); });
  check_throws<InvalidArgument>(t, "expected at least 0, got -1", [&] {
    Chain model({});
    fsdp::fully_shard(model, options).set_max_reduces_in_flight(-1);
  });
}

TESSERA_RANK_TEST("fsdp errors: one parameter in two groups", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  check_throws<StateError>(
      t, "parameter \"block0.linear.weight\" of Block already belongs to group Chain", [&] {
        Chain model({});
        fsdp::fully_shard(model, options);
        fsdp::fully_shard(*model.blocks().front(), options);
      });
  check_throws<StateError>(
      t, "of Holder already belongs to group Holder: shard inner modules before outer ones", [&] {
        Holder first({{.shape = {3}, .init = nn::init::zeros()}});
        Holder second({{.shape = {3}, .init = nn::init::zeros()}});
        nn::tie(first.at(0), second.at(0));
        fsdp::fully_shard(first, options);
        fsdp::fully_shard(second, options);
      });
}

TESSERA_RANK_TEST("fsdp errors: values before they are there", "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  check_throws<StateError>(
      t, "parameters without values: \"block0.linear.weight\", \"block0.linear.bias\"",
      [&] { model(x); });
  nn::initialize(model, {.seed = 1});
  const nn::Parameter weight = model.parameters().front();
  check_throws<StateError>(t, "\"block0.linear.weight\"", [&] { weight.value(); });
  model(x);
  check_throws<StateError>(t, "(group block0)", [&] { weight.value(); });
  fsdp::of(*model.blocks().front()).unshard();
  t.check(weight.value().shape() == Shape({5, 7}), "an unsharded value has shape {}",
          weight.value().shape().str());
  fsdp::of(*model.blocks().front()).reshard();
  check_throws<StateError>(t, "is sharded", [&] { weight.value(); });
}

TESSERA_RANK_TEST(
    "fsdp: a parameter written between forward and backward is an error, and after backward is not",
    "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const Variable x(random_rows(t.world().size() * 2, 7, DType::kF64, 1));
  const Variable loss = sum(model(x));
  for (const nn::NamedParameter& named : model.named_parameters())
    fill_(named.parameter.local().tensor(), 0.5);
  check_throws<StateError>(t, "was written between forward and backward", [&] { backward(loss); });

  Chain twin({});
  nn::initialize(twin, {.seed = 1});
  for (const nn::NamedParameter& named : twin.named_parameters())
    fill_(named.parameter.local().tensor(), 0.5);
  const double error = worst_error(model(x).tensor(), twin(x).tensor());
  t.check(error == 0, "after the write outputs differ by {}", error);
}

TESSERA_RANK_TEST("fsdp: a value that stayed is gathered again when its shard was written",
                  "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = false});
  nn::initialize(model, {.seed = 1});
  Chain twin({});
  nn::initialize(twin, {.seed = 1});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  model(x);  // all values stay: no backward follows
  for (Chain* each : {&model, &twin}) {
    for (const nn::NamedParameter& named : each->named_parameters())
      fill_(named.parameter.local().tensor(), -0.25);
  }
  const double error = worst_error(model(x).tensor(), twin(x).tensor());
  t.check(error == 0, "outputs differ by {}", error);
}

TESSERA_RANK_TEST("fsdp: zero_grad refuses while gradients wait", "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const fsdp::Handle block = fsdp::of(*model.blocks().front());
  block.unshard();
  nn::Parameter weight = model.parameters().front();
  // A gradient handed to the sink outside any backward pass stays there.
  std::string refused;
  Variable y = sum(weight.value());
  y.register_hook([](const Variable&) { return Variable(); });
  Variable through = mul(y, 2.0);
  through.register_hook([&](const Variable&) { return Variable(); });
  weight.value_leaf().register_post_accumulate_hook(
      [&](const Variable&) { refused = message_of<StateError>([&] { weight.zero_grad(); }); });
  backward(through);
  t.check(refused.find("block0") != std::string::npos, "zero_grad during backward said: {}",
          refused);
  weight.zero_grad();
  t.check(!weight.grad().defined(), "zero_grad after backward left a gradient");
}

TESSERA_RANK_TEST("fsdp: a submodule can run before its root, and on its own", "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  Chain twin({});
  nn::initialize(twin, {.seed = 1});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  const auto check_block = [&] {
    const double error =
        worst_error((*model.blocks().front())(x).tensor(), (*twin.blocks().front())(x).tensor());
    t.check(error == 0, "the block alone differs by {}", error);
  };
  check_block();
  backward(sharded_loss(model(Variable(my_rows(random_rows(6, 7, DType::kF64, 2), t.world()))),
                        t.world()));
  backward(plain_loss(twin(Variable(random_rows(6, 7, DType::kF64, 2)))));
  const std::string difference = compare_with_twin(model, twin, 1e-13, /*gradients=*/true);
  t.check(difference.empty(), "{}", difference);
  check_block();
}

TESSERA_RANK_TEST("fsdp: names of groups and parameters", "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  model(Variable(random_rows(2, 7, DType::kF64, 1)));
  t.check(fsdp::of(model).group_name() == "root", "the root's group is {}",
          fsdp::of(model).group_name());
  const fsdp::Handle block = fsdp::of(*model.blocks()[1]);
  t.check(block.group_name() == "block1", "the block's group is {}", block.group_name());
  t.check(block.parameter_names() ==
              std::vector<std::string>{"block1.linear.weight", "block1.linear.bias"},
          "{} parameters", block.parameter_names().size());
  Chain empty({.widths = {7, 5}, .classes = 0});
  shard_chain(empty, {.mesh = t.world().mesh()});
  t.check(!fsdp::of(empty).has_group(), "a root whose blocks own everything has a group");
}

}  // namespace
}  // namespace tessera::testing
