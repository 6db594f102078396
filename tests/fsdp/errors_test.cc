// Errors of fully_shard and replicate, naming module and parameter; and the rules for reading and
// writing parameters. Errors of settings: setting_errors_test.cc.

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/throws.h"

namespace tessera::testing {
namespace {

template <class E>
void check_throws(RankTest& t, const std::string& text, const std::function<void()>& action) {
  const std::string message = thrown<E>(action);
  t.check(message.find(text) != std::string::npos, "expected \"{}\", got: {}", text, message);
}

std::unique_ptr<Chain> make_chain() { return std::make_unique<Chain>(ChainOptions{}); }

using fsdp::FullyShardOptions;

// A sharded model cannot be copied, like any module.
static_assert(!std::is_copy_constructible_v<Chain> && !std::is_copy_assignable_v<Chain>);

TESSERA_RANK_TEST("fsdp errors: meshes and modules that cannot be sharded", "[fsdp]") {
  const FullyShardOptions options = {.mesh = t.world().mesh()};
  const std::string no_mesh = "Chain: no mesh was given: set .mesh, for instance to world.mesh()";
  check_throws<InvalidArgument>(t, no_mesh, [] { fsdp::fully_shard(*make_chain(), {}); });
  check_throws<InvalidArgument>(t, no_mesh, [] { fsdp::replicate(*make_chain(), {}); });
  const distributed::DeviceMesh two({"a", "b"}, {1, t.size()}, t.world().group(),
                                    t.world().device());
  const distributed::DeviceMesh three({"a", "b", "c"}, {1, 1, t.size()}, t.world().group(),
                                      t.world().device());
  check_throws<InvalidArgument>(
      t, "Chain: expected a mesh with 1 axis (shards) or 2 (replicas, shards), got 3",
      [&] { fsdp::fully_shard(*make_chain(), {.mesh = three}); });
  check_throws<InvalidArgument>(t, "Chain: replicate expects a mesh with 1 axis, got 2",
                                [&] { fsdp::replicate(*make_chain(), {.mesh = two}); });
  check_throws<InvalidArgument>(t, "ModuleList is a container without a forward", [&] {
    nn::ModuleList list;
    list.add<nn::Linear>({.in = 2, .out = 2});
    fsdp::fully_shard(list, options);
  });
  check_throws<InvalidArgument>(t, "ModuleDict is a container without a forward", [&] {
    nn::ModuleDict dict;
    dict.add<nn::Linear>("a", {.in = 2, .out = 2});
    fsdp::replicate(dict, {.mesh = t.world().mesh()});
  });
  const std::vector<nn::Module*> nothing, null = {nullptr};
  const char* empty = "the list of modules is empty";
  const char* with_null = "a module of the list is null";
  check_throws<InvalidArgument>(t, empty, [&] { fsdp::fully_shard(nothing, options); });
  check_throws<InvalidArgument>(t, with_null, [&] { fsdp::fully_shard(null, options); });
  check_throws<InvalidArgument>(t, empty,
                                [&] { fsdp::replicate(nothing, {.mesh = t.world().mesh()}); });
  check_throws<InvalidArgument>(t, with_null,
                                [&] { fsdp::replicate(null, {.mesh = t.world().mesh()}); });
}

TESSERA_RANK_TEST("fsdp errors: parameters that cannot be sharded", "[fsdp]") {
  const FullyShardOptions options = {.mesh = t.world().mesh()};
  check_throws<InvalidArgument>(
      t, "parameter \"p1\" of Holder has 0 dims; sharding needs at least 1: reshape it to [1]",
      [&] {
        Holder holder(zeros_of({{3}, {}}));
        fsdp::fully_shard(holder, options);
      });
  const auto mixed = [] {
    auto out = zeros_of({{3}, {3}});
    out.back().dtype = DType::kF64;
    return out;
  };
  check_throws<InvalidArgument>(
      t, "but of Holder \"p0\" is f32 and \"p1\" is f64: shard their modules in calls of their own",
      [&] {
        Holder holder(mixed());
        fsdp::fully_shard(holder, options);
      });
  // A frozen parameter may differ.
  Holder frozen(mixed());
  frozen.at(1).set_requires_grad(false);
  t.check(fsdp::fully_shard(frozen, options).has_group(), "a frozen parameter of another dtype");
}

TESSERA_RANK_TEST("fsdp errors: a parameter cut over a mesh of another root", "[fsdp]") {
  const distributed::DeviceMesh both({"data", "model"}, {1, t.size()}, t.world().group(),
                                     t.world().device());
  const auto cut = [&] {
    auto holder = std::make_unique<Holder>(zeros_of({{2 * t.size(), 3}}));
    const distributed::DeviceMesh model = both["model"];
    holder->at(0).cut(
        distributed::shard_spec({2 * t.size(), 3}, model, {distributed::Shard{.dim = 0}}),
        distributed::make_mesh(model));
    return holder;
  };
  const auto foreign = cut(), own = cut();
  for (const char* part : {"p0", "no root in common"}) {
    check_throws<InvalidArgument>(t, part,
                                  [&] { fsdp::fully_shard(*foreign, {.mesh = t.world().mesh()}); });
  }
  t.check(fsdp::fully_shard(*own, {.mesh = both["data"]}).has_group(), "no group");
}

TESSERA_RANK_TEST("fsdp errors: placements and numbers that do not fit", "[fsdp]") {
  const auto place = [&](const Shape& shape, int dim) {
    Holder holder(zeros_of({shape}));
    fsdp::fully_shard(holder,
                      {.mesh = t.world().mesh(), .shard_placement = [dim](const nn::Parameter&) {
                         return std::optional<distributed::Shard>(distributed::Shard{.dim = dim});
                       }});
  };
  check_throws<InvalidArgument>(
      t, "Shard(1) is out of range for parameter \"p0\" of Holder, which has 1 dims",
      [&] { place({7}, 1); });
  check_throws<InvalidArgument>(
      t, "Shard(-3) is out of range for parameter \"p0\" of Holder, which has 2 dims", [&] {
        place({7, 2}, -3);
      });
  // 31 columns are divisible only by one rank.
  if (t.size() > 1) {
    check_throws<InvalidArgument>(
        t,
        fmt::format("dim 1 of parameter \"p0\" of Holder has 31 elements, which {} ranks cannot "
                    "share evenly",
                    t.size()),
        [&] {
          place({4, 31}, -1);
        });
  }
  const auto check_kept = [&](int ranks) {
    check_throws<InvalidArgument>(
        t,
        fmt::format("reshard_after_forward = {} of Chain must be at least 1 and divide the {} "
                    "ranks of axis \"data\"",
                    ranks, t.size()),
        [&] {
          fsdp::fully_shard(*make_chain(),
                            {.mesh = t.world().mesh(), .reshard_after_forward = ranks});
        });
  };
  for (const int ranks : {0, -1, t.size() + 1}) check_kept(ranks);
  if (t.size() > 2) check_kept(t.size() - 1);  // divides no such world
}

TESSERA_RANK_TEST("fsdp errors: a second call on one module", "[fsdp]") {
  const auto shard = [&](nn::Module& m) { fsdp::fully_shard(m, {.mesh = t.world().mesh()}); };
  const auto copy = [&](nn::Module& m) { fsdp::replicate(m, {.mesh = t.world().mesh()}); };
  const std::vector<std::function<void(nn::Module&)>> calls = {shard, copy};
  for (const auto& first : calls) {
    for (const auto& second : calls) {
      const auto chain = make_chain();
      first(*chain);
      const char* kind = fsdp::kind_name(fsdp::of(*chain).kind());
      check_throws<StateError>(t, fmt::format("Chain has {} applied already", kind),
                               [&] { second(*chain); });
    }
  }
  // Also if the first call had a list, and if no parameter was left to take.
  const auto chain = make_chain();
  Block &a = *chain->blocks()[0], &b = *chain->blocks()[1];
  fsdp::fully_shard({&a, &b}, {.mesh = t.world().mesh()});
  const char* twice = "Block has fully_shard applied already";
  check_throws<StateError>(t, twice, [&] { shard(b); });
  check_throws<StateError>(t, twice, [&] {
    fsdp::fully_shard({&*chain->blocks()[2], &a}, {.mesh = t.world().mesh()});
  });
}

TESSERA_RANK_TEST("fsdp errors: one parameter in two groups", "[fsdp]") {
  const FullyShardOptions options = {.mesh = t.world().mesh()};
  const auto check_both = [&](const char* one, const char* other, const auto& action) {
    check_throws<StateError>(t, one, action);
    check_throws<StateError>(t, other, action);
  };
  // If the outer module is sharded first, the error names both modules and the parameter.
  const auto outer_first = [&] {
    const auto model = make_chain();
    fsdp::fully_shard(*model, options);
    fsdp::fully_shard(*model->blocks().front(), options);
  };
  check_both("Chain", "Block", outer_first);
  check_throws<StateError>(t, "block0.linear.weight", outer_first);
  // Tied across groups: the error has both paths once a root has named them.
  const auto tied = [&](bool replicated) {
    nn::Sequential net;
    net.add<nn::Linear>({.in = 3, .out = 3});
    net.add<nn::Linear>({.in = 3, .out = 3});
    nn::tie(net.at<nn::Linear>(0).weight(), net.at<nn::Linear>(1).weight());
    fsdp::fully_shard(net.at(0), options);
    if (replicated) {
      fsdp::replicate(net.at(1), {.mesh = t.world().mesh()});
    } else {
      fsdp::fully_shard(net.at(1), options);
    }
    fsdp::fully_shard(net, options);
    nn::initialize(net, {.seed = 1});
    net(Variable(random_rows(2, 3, DType::kF32, 1)));
  };
  for (const bool replicated : {false, true})
    check_both("\"weight\" of Linear", "already belongs to group Linear",
               [&] { tied(replicated); });
  // In one call's list the tie is legal.
  nn::Sequential net;
  net.add<nn::Linear>({.in = 3, .out = 3});
  net.add<nn::Linear>({.in = 3, .out = 3});
  nn::tie(net.at<nn::Linear>(0).weight(), net.at<nn::Linear>(1).weight());
  fsdp::fully_shard({&net.at(0), &net.at(1)}, options);
}

TESSERA_RANK_TEST("fsdp errors: an outer call of which an inner one left nothing is legal",
                  "[fsdp]") {
  Chain model({.classes = 0});
  for (const auto& block : model.blocks()) fsdp::fully_shard(*block, {.mesh = t.world().mesh()});
  const fsdp::Handle root = fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  t.check(!root.has_group() && root.placements().parameter.empty() && root.gathered_bytes() == 0,
          "the root has a group");
}

TESSERA_RANK_TEST("fsdp errors: a group of several modules cannot be the root", "[fsdp]") {
  nn::Sequential net;
  net.add<nn::Linear>({.in = 3, .out = 3, .dtype = DType::kF64});
  net.add<nn::Linear>({.in = 3, .out = 3, .dtype = DType::kF64});
  fsdp::fully_shard({&net.at(0), &net.at(1)}, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 1});
  check_throws<StateError>(t, "a group of several modules (Linear, Linear) cannot be the root",
                           [&] { net(Variable(random_rows(2, 3, DType::kF64, 1))); });
}

TESSERA_RANK_TEST("fsdp errors: no state", "[fsdp]") {
  const auto model = make_chain();
  t.check(!fsdp::has_state(*model), "a state from nowhere");
  check_throws<StateError>(t, "no FSDP state on Chain", [&] { fsdp::of(*model); });
  check_throws<InvalidArgument>(t, "Chain has no FSDP state: shard the roots first",
                                [&] { fsdp::share_comm_context({model.get()}); });
  fsdp::fully_shard(*model, {.mesh = t.world().mesh()});
  t.check(fsdp::has_state(*model), "no state after fully_shard");
}

TESSERA_RANK_TEST("fsdp errors: values before they are there", "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  check_throws<StateError>(
      t, "parameters without values: \"block0.linear.weight\", \"block0.linear.bias\"",
      [&] { model(x); });
  // Some have values: these must not be lost by doing what the text says.
  model.parameters().front().materialize(t.world().device());
  check_throws<StateError>(t,
                           "call nn::initialize(model, {.only_missing = true}), which keeps the "
                           "others, or load them first",
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

  Chain reference({});
  nn::initialize(reference, {.seed = 1});
  for (const nn::NamedParameter& named : reference.named_parameters())
    fill_(named.parameter.local().tensor(), 0.5);
  const double error = worst_error(model(x).tensor(), reference(x).tensor());
  t.check(error == 0, "after the write outputs differ by {}", error);
}

TESSERA_RANK_TEST("fsdp: a write between forward and backward throws, released or kept", "[fsdp]") {
  for (const bool reshard : {true, false}) {
    Chain model({});
    shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    nn::initialize(model, {.seed = 1});
    const Variable x(random_rows(2, 7, DType::kF64, 1));
    const Variable loss = sum(model(x));
    const nn::Module& block = *model.blocks()[1];
    t.check(
        fsdp::of(block).state() == (reshard ? fsdp::GroupState::kSharded : fsdp::GroupState::kFull),
        "the value is not where it is to be");
    mul_(block.named_parameters().front().parameter.local().tensor(), 1);  // a write that keeps the
                                                                           // numbers
    check_throws<StateError>(t, "\"block1.linear.weight\" of group block1 was written between",
                             [&] { backward(loss); });
  }
}

TESSERA_RANK_TEST("fsdp: a value that stayed is gathered again when its shard was written",
                  "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = false});
  nn::initialize(model, {.seed = 1});
  Chain reference({});
  nn::initialize(reference, {.seed = 1});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  model(x);  // all values stay gathered, since no backward follows
  for (Chain* each : {&model, &reference}) {
    for (const nn::NamedParameter& named : each->named_parameters())
      fill_(named.parameter.local().tensor(), -0.25);
  }
  const double error = worst_error(model(x).tensor(), reference(x).tensor());
  t.check(error == 0, "outputs differ by {}", error);
}

TESSERA_RANK_TEST("fsdp: zero_grad refuses while gradients wait", "[fsdp]") {
  Chain model({});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const fsdp::Handle block = fsdp::of(*model.blocks().front());
  block.unshard();
  nn::Parameter weight = model.parameters().front();
  // A gradient passed to the sink outside a backward pass stays there.
  std::string refused;
  Variable y = sum(weight.value());
  y.register_hook([](const Variable&) { return Variable(); });
  Variable through = mul(y, 2.0);
  through.register_hook([&](const Variable&) { return Variable(); });
  weight.value_leaf().register_post_accumulate_hook(
      [&](const Variable&) { refused = thrown<StateError>([&] { weight.zero_grad(); }); });
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
  Chain reference({});
  nn::initialize(reference, {.seed = 1});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  const auto check_block = [&] {
    const double error = worst_error((*model.blocks().front())(x).tensor(),
                                     (*reference.blocks().front())(x).tensor());
    t.check(error == 0, "the block alone differs by {}", error);
  };
  check_block();
  backward(sharded_loss(model(Variable(my_rows(random_rows(6, 7, DType::kF64, 2), t.world()))),
                        t.world()));
  backward(plain_loss(reference(Variable(random_rows(6, 7, DType::kF64, 2)))));
  const std::string difference =
      compare_with_reference(model, reference, 1e-13, /*gradients=*/true);
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
