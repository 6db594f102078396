// Scopes of defaults: a model that shards parts of itself while it is built, only inside a scope.

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <string>

#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/wrap_policy.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tests/fsdp/wrap/wrap_model.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// A layer that may be a group inside another.
class Outer final : public nn::Layer<Outer> {
 public:
  explicit Outer(bool double_nest) : nested_linear_(linear()) {
    register_module("nested_linear", nested_linear_);
    if (double_nest) fsdp::wrap_here(nested_linear_);
  }
  static nn::LinearOptions linear() {
    return {.in = 10, .out = 10, .bias = false, .dtype = DType::kF64};
  }
  Variable forward(const Variable& x) { return nested_linear_(x); }
  nn::Linear& nested_linear() { return nested_linear_; }

 private:
  nn::Linear nested_linear_;
};

/// SkipModel of PyTorch's FSDP tests, sharded while it is built: the same names and sizes as
/// SkipModel.
class SelfWrapping final : public nn::Layer<SelfWrapping> {
 public:
  explicit SelfWrapping(bool double_nest, const fsdp::WrapOverrides& overrides = {})
      : linear_(Outer::linear()), linear_skip_(DType::kF64), nested_linear_(double_nest) {
    register_module("linear", linear_);
    register_module("linear_skip", linear_skip_);
    register_module("nested_linear", fsdp::wrap_here(nested_linear_, overrides));
  }
  Variable forward(const Variable& x) { return nested_linear_(linear_skip_(linear_(x))); }
  Outer& nested() { return nested_linear_; }

 private:
  nn::Linear linear_;
  SkipModule linear_skip_;
  Outer nested_linear_;
};

TESSERA_RANK_TEST("fsdp wrap_here: inside a scope, as the calls by hand", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  for (const bool double_nest : {false, true}) {
    std::unique_ptr<SelfWrapping> by_scope;
    {
      const fsdp::WrapDefaults scope(options);
      by_scope = std::make_unique<SelfWrapping>(double_nest);
    }
    fsdp::fully_shard(*by_scope, options);
    const std::string groups = names_in(*by_scope, fsdp::sharded_modules(*by_scope));
    t.check(groups == (double_nest ? "nested_linear nested_linear.nested_linear" : "nested_linear"),
            "sharded: {}", groups);
    SkipModel by_hand({.double_nest = double_nest, .dtype = DType::kF64});
    for (nn::Module* group : by_hand.groups()) fsdp::fully_shard(*group, options);
    fsdp::fully_shard(by_hand, options);
    const std::string left = trained_records(*by_scope, 10);
    const std::string right = trained_records(by_hand, 10);
    t.check(left == right, "by scope:\n{}\nby hand:\n{}", left, right);
  }
}

TESSERA_RANK_TEST("fsdp wrap_here: does nothing outside of a scope", "[fsdp]") {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  { const fsdp::WrapDefaults scope(options); }
  SelfWrapping model(true);
  t.check(fsdp::sharded_modules(model).empty(), "sharded: {}",
          names_in(model, fsdp::sharded_modules(model)));
  // Another rank's scope does not apply here: ranks may be threads.
  std::optional<fsdp::WrapDefaults> scope;
  if (t.rank() == 0) scope.emplace(options);
  distributed::barrier(t.group());
  SelfWrapping other(true);
  t.check(fsdp::sharded_modules(other).empty() == (t.rank() != 0), "{} parts are sharded",
          fsdp::sharded_modules(other).size());
  distributed::barrier(t.group());
}

TESSERA_RANK_TEST_WITH("fsdp wrap_here: overrides, and ignored modules", "[fsdp]",
                       {.worlds = {2}}) {
  const fsdp::WrapDefaults scope({.mesh = t.world().mesh(), .reshard_after_forward = true});
  SelfWrapping model(true, [](fsdp::FullyShardOptions& o) { o.reshard_after_forward = false; });
  t.check(
      fsdp::of(model.nested()).options().reshard_after_forward == fsdp::ReshardAfterForward(false),
      "overrides were not taken");
  t.check(fsdp::of(model.nested().nested_linear()).options().reshard_after_forward ==
              fsdp::ReshardAfterForward(true),
          "overrides of one module reached another");
}

TESSERA_RANK_TEST_WITH("fsdp wrap_here: what the scope ignores stays as it is", "[fsdp]",
                       {.worlds = {2}}) {
  nn::Linear ignored(Outer::linear()), other(Outer::linear());
  const fsdp::WrapDefaults scope({.mesh = t.world().mesh(), .ignored_modules = {&ignored}});
  t.check(&fsdp::wrap_here(ignored) == &ignored, "wrap_here answers another module");
  fsdp::wrap_here(other);
  t.check(!fsdp::has_state(ignored), "an ignored module has a state");
  t.check(fsdp::has_state(other), "a module beside an ignored one has none");
}

TESSERA_RANK_TEST_WITH("fsdp wrap_here: errors", "[fsdp]", {.worlds = {2}}) {
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh()};
  {
    const fsdp::WrapDefaults scope(options);
    t.check_throws<StateError>("there is a scope of defaults on this thread already",
                               [&] { const fsdp::WrapDefaults inner(options); });
    nn::Linear layer(Outer::linear());
    fsdp::wrap_here(layer);
    t.check_throws<StateError>("can be applied to a module once", [&] { fsdp::wrap_here(layer); });
  }
  const fsdp::WrapDefaults again(options);  // the failed scope left no state behind
  nn::Linear layer(Outer::linear());
  t.check(fsdp::has_state(fsdp::wrap_here(layer)), "the second scope does nothing");
}

}  // namespace
}  // namespace tessera::testing
