// Policies: the modules they wrap and the order, equality with calls by hand, and errors.

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/fsdp/wrap_policy.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/wrap/wrap_model.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// For tests that depend only on the model, not on ranks.
const RankTestOptions kOneWorld = {.worlds = {2}};

/// A policy's calls and calls by hand must leave equal traces.
template <class Model>
void check_same_records(RankTest& t, Model& by_policy, Model& by_hand, std::int64_t width) {
  const std::string left = trained_records(by_policy, width);
  const std::string right = trained_records(by_hand, width);
  t.check(left == right, "by policy:\n{}\nby hand:\n{}", left, right);
  t.check(left.find("post_backward") != std::string::npos, "nothing was recorded:\n{}", left);
}

TESSERA_RANK_TEST("fsdp wrap: by type, as the calls by hand", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  Chain by_policy({}), by_hand({});
  const auto wrapped = fsdp::wrap(by_policy, fsdp::wrap_types<Block>(), options);
  fsdp::fully_shard(by_policy, options);
  t.check(names_in(by_policy, wrapped) == "block0 block1 block2", "wrapped {}",
          names_in(by_policy, wrapped));
  shard_chain(by_hand, options);
  check_same_records(t, by_policy, by_hand, 7);
}

TESSERA_RANK_TEST("fsdp wrap: always, as the calls by hand", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  AlwaysWrapNestedWrappedModule by_policy({.dtype = DType::kF64}), by_hand({.dtype = DType::kF64});
  auto wrapped = fsdp::wrap(by_policy, fsdp::wrap_always(), options);
  fsdp::fully_shard(by_policy, options);
  wrapped.push_back(&by_policy);
  t.check(wrapped == by_policy.groups(), "wrapped {}", names_in(by_policy, wrapped));
  for (nn::Module* group : by_hand.groups()) fsdp::fully_shard(*group, options);
  check_same_records(t, by_policy, by_hand, 8);
}

TESSERA_RANK_TEST("fsdp wrap: replicas", "[fsdp]") {
  const fsdp::ReplicateOptions options = {.mesh = t.world().mesh()};
  Chain by_policy({}), by_hand({});
  fsdp::wrap_replicate(by_policy, fsdp::wrap_types<Block>(), options);
  fsdp::replicate(by_policy, options);
  for (const auto& block : by_hand.blocks()) fsdp::replicate(*block, options);
  fsdp::replicate(by_hand, options);
  check_same_records(t, by_policy, by_hand, 7);
}

TESSERA_RANK_TEST_WITH("fsdp wrap: hybrid sharding", "[fsdp]", {.worlds = {4}}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     default_device());
  const fsdp::FullyShardOptions options = {.mesh = mesh, .reshard_after_forward = false};
  Chain by_policy({}), by_hand({});
  fsdp::wrap(by_policy, fsdp::wrap_types<Block>(), options);
  fsdp::fully_shard(by_policy, options);
  for (const auto& block : by_hand.blocks()) fsdp::fully_shard(*block, options);
  fsdp::fully_shard(by_hand, options);
  check_same_records(t, by_policy, by_hand, 7);
}

TESSERA_RANK_TEST("fsdp wrap: calls by hand and policies, mixed", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  Chain mixed({.stem = true}), by_hand({.stem = true});
  fsdp::fully_shard(*mixed.blocks()[1], options);
  fsdp::wrap(mixed, fsdp::wrap_if([](const fsdp::WrapCandidate& c) { return c.name == "block0"; }),
             options);
  const auto rest = fsdp::wrap(mixed, fsdp::wrap_types<Block>(), options);
  t.check(names_in(mixed, rest) == "block2", "the last policy wrapped {}", names_in(mixed, rest));
  fsdp::fully_shard(mixed, options);
  shard_chain(by_hand, options);
  check_same_records(t, mixed, by_hand, 7);
}

/// The modules that a policy of `least` elements wraps in the nested model, whose layers have 36,
/// (80, 272), 68 and 40 elements.
std::string wrapped_by_size(RankTest& t, std::int64_t least) {
  NestedWrappedModule model;
  return names_in(model, fsdp::wrap(model, fsdp::wrap_by_size({.min_elements = least}),
                                    {.mesh = t.world().mesh()}));
}

TESSERA_RANK_TEST_WITH("fsdp wrap: by size counts what is not wrapped yet", "[fsdp]", (kOneWorld)) {
  const std::vector<std::pair<std::int64_t, std::string>> expected = {
      {497, ""},
      {496, "module"},
      {353, "module"},
      {352, "module.1"},  // 144 are left above it
      {272, "module.1.1"},
      {225, "module.1.1"},
      {224, "module.1.1 module"},  // 36 + 80 + 68 + 40
      {69, "module.1.0 module.1.1 module"},
      {68, "module.1.0 module.1.1 module.2 module"},
      {1, "module.0 module.1.0 module.1.1 module.2 module.3"},
  };
  for (const auto& [least, names] : expected) {
    const std::string seen = wrapped_by_size(t, least);
    t.check(seen == names, "at least {}: wrapped {}; expected {}", least, seen, names);
  }
  NestedWrappedModule model;
  t.check(fsdp::wrap(model, fsdp::wrap_by_size(), {.mesh = t.world().mesh()}).empty(),
          "the default wraps modules of fewer than 100 million elements");
}

/// Attention in a list, as the only children.
class Attentive final : public nn::Layer<Attentive> {
 public:
  Attentive() {
    layers_.add<nn::MultiheadAttention>({.dim = 6, .heads = 2});
    layers_.add<nn::Linear>({.in = 6, .out = 6});
    register_module("layers", layers_);
  }
  Variable forward(const Variable& x) { return x; }

 private:
  nn::ModuleList layers_;
};

TESSERA_RANK_TEST_WITH("fsdp wrap: leaves are not entered, and lists never wrapped", "[fsdp]",
                       (kOneWorld)) {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  const auto wrapped_by = [&](const fsdp::WrapPolicy& policy) {
    Attentive model;
    return names_in(model, fsdp::wrap(model, policy, options));
  };
  const auto never = [](const nn::Module&) { return false; };
  const fsdp::WrapPolicy by_size = fsdp::wrap_by_size({.min_elements = 40});
  const fsdp::WrapPolicy linears = fsdp::wrap_types<nn::Linear>();
  const std::string leaf = wrapped_by(by_size);
  t.check(leaf == "layers.0 layers.1", "with attention as a leaf: {}", leaf);
  const std::string entered =
      wrapped_by(fsdp::wrap_by_size({.min_elements = 40, .is_leaf = never}));
  t.check(entered == "layers.0.out_proj layers.0 layers.1", "with attention entered: {}", entered);
  const std::string either = wrapped_by(fsdp::wrap_any_of({linears, by_size}));
  t.check(either == "layers.0 layers.1", "a leaf of one policy: {}", either);
  const std::string always = wrapped_by(fsdp::wrap_always());
  t.check(always == "layers.0.out_proj layers.0 layers.1", "always: {}", always);
}

/// The same layer under two names, and a dropout.
class Shared final : public nn::Layer<Shared> {
 public:
  Shared() : layer_({.in = 5, .out = 5}), dropout_({.p = 0.5}) {
    register_module("first", layer_);
    register_module("dropout", dropout_);
    register_module("second", layer_);
  }
  Variable forward(const Variable& x) { return layer_(dropout_(layer_(x))); }

 private:
  nn::Linear layer_;
  nn::Dropout dropout_;
};

TESSERA_RANK_TEST_WITH("fsdp wrap: what a policy is asked", "[fsdp]", (kOneWorld)) {
  std::string asked;
  const fsdp::WrapPolicy policy = fsdp::wrap_if([&asked](const fsdp::WrapCandidate& c) {
    asked += c.name + " " + std::to_string(c.free_elements) + "; ";
    return c.name == "module.1.0";
  });
  NestedWrappedModule model;
  model.parameters()[0].set_requires_grad(false);  // frozen parameters count
  fsdp::wrap(model, policy, {.mesh = t.world().mesh()});
  t.check(asked ==
              "module.0 36; module.1.0 80; module.1.1 272; module.1 272; module.2 68; "
              "module.3 40; module 416; ",
          "asked: {}", asked);
  asked.clear();
  Shared shared;
  fsdp::wrap(shared, policy, {.mesh = t.world().mesh()});
  t.check(asked == "first 30; dropout 0; ", "asked: {}", asked);
}

TESSERA_RANK_TEST_WITH("fsdp wrap: options of a module's own", "[fsdp]", (kOneWorld)) {
  const auto own = [](const fsdp::WrapCandidate& c) -> fsdp::WrapAnswer {
    if (c.name == "block0") {
      fsdp::FullyShardOptions kept;
      kept.reshard_after_forward = false;
      return kept;
    }
    if (c.name == "block1") return fsdp::ReplicateOptions{};
    return c.name == "block2";
  };
  Chain model({});
  fsdp::wrap(model, fsdp::wrap_any_of({fsdp::wrap_if(own), fsdp::wrap_types<Block>()}),
             {.mesh = t.world().mesh(), .reshard_after_forward = true});
  const auto reshard = [&](std::size_t i) {
    return fsdp::of(*model.blocks()[i]).options().reshard_after_forward;
  };
  t.check(reshard(0) == fsdp::ReshardAfterForward(false), "block0 has not its own options");
  t.check(fsdp::of(*model.blocks()[1]).kind() == fsdp::Kind::kReplicate, "block1 is sharded");
  t.check(reshard(2) == fsdp::ReshardAfterForward(true), "block2 has not the options of the call");
  for (const auto& block : model.blocks()) {
    t.check(fsdp::of(*block).options().mesh == t.world().mesh(), "a mesh was not passed on");
  }
}

TESSERA_RANK_TEST_WITH("fsdp wrap: ignored modules and parameters", "[fsdp]", (kOneWorld)) {
  NestedWrappedModule model;
  nn::Module& skipped = model.get_submodule("module.1.0");
  std::string asked;
  const fsdp::WrapPolicy policy =
      fsdp::wrap_if([&asked](const fsdp::WrapCandidate& c) -> fsdp::WrapAnswer {
        asked += c.name + " " + std::to_string(c.free_elements) + "; ";
        if (c.name == "module.1")
          return fsdp::FullyShardOptions{};  // ignores the modules that
                                             // wrap() ignores
        return c.name == "module.2";
      });
  NestedWrappedModule elsewhere;  // not in the model: has no effect
  fsdp::wrap(model, policy,
             {.mesh = t.world().mesh(),
              .ignored_parameters = {model.get_parameter("module.2.bias")},
              .ignored_modules = {&skipped, &elsewhere}});
  t.check(asked ==
              "module.0 36; module.1.1 272; module.1 272; module.2 64; module.3 40; "
              "module 76; ",
          "asked: {}", asked);
  t.check(!fsdp::has_state(skipped), "an ignored module has a state");
  for (const char* name : {"module.1.0.weight", "module.2.bias"}) {
    t.check(model.get_parameter(name).owner() == nullptr, "{} is in a group", name);
  }
  const fsdp::FullyShardOptions& inner = fsdp::of(model.get_submodule("module.1")).options();
  t.check(inner.ignored_modules == std::vector{&skipped} && inner.ignored_parameters.empty(),
          "module.1 ignores {} modules and {} parameters", inner.ignored_modules.size(),
          inner.ignored_parameters.size());
}

TESSERA_RANK_TEST_WITH("fsdp wrap: errors", "[fsdp]", (kOneWorld)) {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  const fsdp::WrapPolicy blocks = fsdp::wrap_types<Block>();
  Chain model({});
  t.check_throws<InvalidArgument>("the policy has no rule",
                                  [&] { fsdp::wrap(model, {.decide = {}}, options); });
  t.check_throws<InvalidArgument>("the policy has no rule", [&] {
    fsdp::wrap_any_of({blocks, {.decide = {}}});
  });
  t.check_throws<InvalidArgument>("no policies were given", [] { fsdp::wrap_any_of({}); });
  t.check_throws<InvalidArgument>("the function is empty", [] { fsdp::wrap_if({}); });
  t.check_throws<InvalidArgument>("min_elements is 0; expected at least 1",
                                  [] { fsdp::wrap_by_size({.min_elements = 0}); });
  t.check_throws<InvalidArgument>("a null module is among the ignored ones", [&] {
    fsdp::wrap(model, blocks, {.mesh = t.world().mesh(), .ignored_modules = {nullptr}});
  });
  t.check_throws<InvalidArgument>("no mesh", [&] { fsdp::wrap(model, blocks, {}); });
  fsdp::fully_shard(model, options);
  t.check_throws<StateError>("Chain is sharded already, and its group holds what is below",
                             [&] { fsdp::wrap(model, blocks, options); });
}

}  // namespace
}  // namespace tessera::testing
