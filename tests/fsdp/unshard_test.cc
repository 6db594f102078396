// Values unsharded and resharded by hand: at once and asynchronously, before any forward, never
// waited for, and how long they stay.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::GroupState;

void check_state(RankTest& t, const std::string& what, const fsdp::Handle& handle,
                 GroupState expected) {
  t.check(handle.state() == expected, "{}: the group is {}, expected {}", what,
          fsdp::group_state_name(handle.state()), fsdp::group_state_name(expected));
}

/// Checks that every open value of a block equals the reference's.
void check_values(RankTest& t, const std::string& what, const nn::Module& module,
                  const nn::Module& reference) {
  const auto left = module.named_parameters(), right = reference.named_parameters();
  for (std::size_t i = 0; i < left.size(); ++i)
    t.check_equal(left[i].parameter.value().tensor(), right[i].parameter.value().tensor(),
                  what + ": " + left[i].name);
}

void check_gathered_bytes(RankTest& t, const std::string& what) {
  const std::int64_t bytes = t.world().context()->memory().current()[MemoryCategory::kGathered];
  t.check(bytes == 0, "{}: {} gathered bytes remain", what, bytes);
}

/// A chain and its unsharded reference.
struct Pair {
  Pair(RankTest& t, const fsdp::ReshardAfterForward& reshard) : sharded({}), reference({}) {
    shard_chain(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    fsdp::of(sharded).set_prefetch({.forward = 0});
    nn::initialize(sharded, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
  }
  Block& block(std::size_t i) { return *sharded.blocks()[i]; }
  fsdp::Handle handle(std::size_t i) { return fsdp::of(block(i)); }

  Chain sharded, reference;
};

const Variable& input() {
  static thread_local const Variable x(random_rows(2, 7, DType::kF64, 1));
  return x;
}

TESSERA_RANK_TEST("fsdp unshard: before any forward, in both ways, then a forward", "[fsdp]") {
  for (const bool async : {false, true}) {
    Pair p(t, true);
    check_state(t, "at first", p.handle(1), GroupState::kSharded);
    const ExecutionTrace trace = traced(t, [&] {
      fsdp::UnshardHandle gather = p.handle(1).unshard({.async = async});
      if (async && t.size() > 1) {
        check_state(t, "issued", p.handle(1), GroupState::kGathering);
        t.check_throws<StateError>("block1", [&] { p.block(1).parameters().front().value(); });
      }
      gather.wait();
      gather.wait();
      p.handle(1).unshard();
    });
    check_state(t, "waited", p.handle(1), GroupState::kFull);
    check_values(t, "opened", p.block(1), *p.reference.blocks()[1]);
    check_counts(t, "opened once", trace, unless_alone(t, {.all_gather = 1}));
    check_state(t, "the next one", p.handle(2), GroupState::kSharded);
    check_state(t, "the root", fsdp::of(p.sharded), GroupState::kSharded);
    const double error = worst_error(p.sharded(input()).tensor(), p.reference(input()).tensor());
    t.check(error == 0, "outputs differ by {}", error);
  }
}

TESSERA_RANK_TEST("fsdp unshard: a module without a group has nothing to open", "[fsdp]") {
  Chain model({.classes = 0});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const fsdp::Handle root = fsdp::of(model);
  const ExecutionTrace trace = traced(t, [&] {
    root.unshard({.async = true}).wait();
    root.unshard();
    root.reshard();
    fsdp::UnshardHandle().wait();
  });
  check_counts(t, "a root without a group", trace, {});
  t.check(!root.has_group() && root.state() == GroupState::kSharded, "the root has a group");
  t.check(events_of(trace, kOrderAndReshard).empty(), "events: {}",
          events_of(trace, kOrderAndReshard));
}

TESSERA_RANK_TEST("fsdp unshard: a handle that nobody waits for", "[fsdp]") {
  Pair p(t, true);
  // The next forward waits for the gather and does not gather again.
  p.handle(0).unshard({.async = true});
  Variable loss;
  check_events(t, "forward", traced(t, [&] { loss = local_loss(p.sharded(input())); }),
               "U root; U block1; U block2");
  backward(loss);
  for (std::size_t i = 0; i < 3; ++i)
    check_state(t, "after a step", p.handle(i), GroupState::kSharded);
  check_gathered_bytes(t, "after a step");
  // Resharded before it was waited for.
  p.handle(2).unshard({.async = true});
  p.handle(2).reshard();
  check_state(t, "closed without a wait", p.handle(2), GroupState::kSharded);
  fsdp::UnshardHandle late = p.handle(2).unshard({.async = true});
  p.handle(2).reshard();
  late.wait();  // of a gather that was dropped
  check_state(t, "waited after it was closed", p.handle(2), GroupState::kSharded);
  check_gathered_bytes(t, "closed without a wait");
}

/// Runs all blocks but the last.
class Skipping final : public nn::Layer<Skipping> {
 public:
  Skipping() : chain_({.widths = {7, 7, 7}, .classes = 0}) { register_module("chain", chain_); }
  Variable forward(const Variable& x) { return (*chain_.blocks()[0])(x); }
  const Chain& chain() const { return chain_; }

 private:
  Chain chain_;
};

TESSERA_RANK_TEST("fsdp unshard: what was gathered and never used goes at the end of the iteration",
                  "[fsdp]") {
  for (const bool backward_follows : {true, false}) {
    Skipping model;
    for (const auto& block : model.chain().blocks())
      fsdp::fully_shard(*block, {.mesh = t.world().mesh()});
    fsdp::fully_shard(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    const fsdp::Handle unused = fsdp::of(*model.chain().blocks()[1]);
    unused.unshard({.async = true});
    if (backward_follows) {
      backward(local_loss(model(input())));
    } else {
      const NoGradGuard no_grad;
      model(input());
    }
    check_state(t, "never used", unused, GroupState::kSharded);
    check_gathered_bytes(t, "never used");
  }
}

TESSERA_RANK_TEST("fsdp unshard: a value opened by hand stays until the end of the next forward",
                  "[fsdp]") {
  for (const bool reshard : {true, false}) {
    Pair p(t, reshard);
    p.handle(1).unshard();
    const Variable loss = local_loss(p.sharded(input()));
    check_state(t, "after forward", p.handle(1),
                reshard ? GroupState::kSharded : GroupState::kFull);
    if (reshard) p.handle(1).unshard();
    check_events(t, "backward", traced(t, [&] { backward(loss); }),
                 reshard ? "U block2; P block2; U block0; P block1; P block0; P root"
                         : "P block2; P block1; P block0; P root");
    check_state(t, "after backward", p.handle(1), GroupState::kSharded);
  }
}

TESSERA_RANK_TEST("fsdp unshard: writes to shards after it are seen by the next forward",
                  "[fsdp]") {
  Pair p(t, true);
  p.handle(1).unshard();
  for (Chain* each : {&p.sharded, &p.reference}) {
    for (const nn::NamedParameter& named : each->named_parameters())
      fill_(named.parameter.local().tensor(), 0.125);
  }
  const double error = worst_error(p.sharded(input()).tensor(), p.reference(input()).tensor());
  t.check(error == 0, "outputs differ by {}", error);
}

TESSERA_RANK_TEST("fsdp unshard: a handle outlives its module", "[fsdp]") {
  fsdp::UnshardHandle gather;
  {
    Pair p(t, true);
    gather = p.handle(0).unshard({.async = true});
  }
  gather.wait();
  check_gathered_bytes(t, "the model is gone");
}

/// A matrix product whose result is averaged over the ranks, as in a two-tower model.
class Averaging final : public nn::Layer<Averaging> {
 public:
  Averaging() : linear_({.in = 8, .out = 8, .bias = false, .dtype = DType::kF64}) {
    register_module("linear", linear_);
  }
  Variable forward(const Variable& x, distributed::ProcessGroup* group) {
    const Variable y = linear_(x);
    if (group == nullptr) return y;
    // Without a derivative: the added value is a constant of the graph.
    const Tensor mean = clone(y.tensor());
    distributed::all_reduce(*group, std::vector{mean}, distributed::ReduceOp::kAverage).wait();
    return add(y, Variable(mean));
  }

 private:
  nn::Linear linear_;
};

}  // namespace
}  // namespace tessera::testing

template <>
inline constexpr bool tessera::nn::holds_no_tensors<tessera::distributed::ProcessGroup*> = true;

namespace tessera::testing {
namespace {

/// Three of them, then three MLPs that are unsharded in between.
class Towers final : public nn::Layer<Towers> {
 public:
  Towers() {
    for (int i = 0; i < 3; ++i) {
      towers_.push_back(std::make_unique<Averaging>());
      mlps_.push_back(std::make_unique<MLP>(MLPOptions{.dim = 8, .dtype = DType::kF64}));
      register_module("tower" + std::to_string(i), *towers_.back());
      register_module("mlp" + std::to_string(i), *mlps_.back());
    }
  }
  Variable forward(const Variable& x) {
    Variable total;
    for (std::size_t i = 0; i < 3; ++i) {
      if (ahead) fsdp::of(*mlps_[i]).unshard({.async = true});
      const Variable y = (*towers_[i])(x, group);
      total = total.defined() ? add(total, y) : y;
    }
    for (const auto& mlp : mlps_) total = add(total, (*mlp)(total));
    return total;
  }
  const std::vector<std::unique_ptr<MLP>>& mlps() const { return mlps_; }

  distributed::ProcessGroup* group = nullptr;
  bool ahead = false;

 private:
  std::vector<std::unique_ptr<Averaging>> towers_;
  std::vector<std::unique_ptr<MLP>> mlps_;
};

TESSERA_RANK_TEST("fsdp unshard: gathers issued between a user's own collectives", "[fsdp]") {
  Towers model, reference;
  for (const auto& mlp : model.mlps())
    fsdp::fully_shard(*mlp, {.mesh = t.world().mesh(), .reshard_after_forward = false});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  model.group = reference.group = &t.group();
  model.ahead = true;
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 4; ++step) {
    // All ranks have the same rows, so their average equals the reference's value.
    const Variable x(random_rows(3, 8, DType::kF64, step));
    backward(local_loss(model(x)));
    backward(local_loss(reference(x)));
    const std::string difference =
        compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "step {}: {}", step, difference);
    for (auto* each : {&sgd, &reference_sgd}) {
      each->step();
      each->zero_grad();
    }
  }
}

}  // namespace
}  // namespace tessera::testing
