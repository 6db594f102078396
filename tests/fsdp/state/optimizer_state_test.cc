// Full states of optimizers: full tensors by parameter names, gathered from shards and sharded
// again.
#include <catch2/catch.hpp>

#include <utility>

#include "tessera/fsdp/state/state.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

using nn::optim::AdamW;
using nn::optim::SGD;

// Two groups with different options, and an empty one.
std::vector<AdamW::Group> groups_of(StateNet& net, double lr) {
  auto [matrices, rest] = nn::optim::group_parameters(
      net.named_parameters(),
      [](const nn::NamedParameter& named) { return named.parameter.shape().ndim() > 1; });
  return {{.parameters = matrices, .options = {.lr = lr, .weight_decay = 0.1}},
          {.parameters = rest, .options = {.lr = lr / 3, .weight_decay = 0}},
          {.parameters = {}, .options = {.lr = lr / 7}}};
}

nn::StateDict on_rank0(int rank, const nn::StateDict& state) {
  return rank == 0 ? state : nn::StateDict();
}

void check_close_state(RankTest& t, const nn::StateDict& actual, const nn::StateDict& expected) {
  t.check(actual.size() == expected.size(), "{} entries, expected {}", actual.size(),
          expected.size());
  for (const auto& [name, value] : expected) {
    const auto* tensor = std::get_if<Tensor>(&value);
    if (!t.check(actual.contains(name), "{} is missing", name)) continue;
    if (tensor != nullptr) {
      t.check_close(actual.tensor(name), *tensor, {1e-9, 1e-12}, name);
    } else {
      t.check(value_text(*actual.find(name)) == value_text(value), "{} is {}, expected {}", name,
              value_text(*actual.find(name)), value_text(value));
    }
  }
}

TESSERA_RANK_TEST("a full optimizer state is that of the unsharded optimizer", "[fsdp][state]") {
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  AdamW adam(groups_of(net, 0.01)), plain_adam(groups_of(plain, 0.01));
  train(net, adam, 3);
  train(plain, plain_adam, 3);
  adam.set_lr(1, 0.25);
  plain_adam.set_lr(1, 0.25);
  const nn::StateDict all = fsdp::full_optimizer_state(adam, {.rank0_only = false});
  check_close_state(t, all, plain_adam.state_dict());
  const nn::StateDict first = fsdp::full_optimizer_state(adam);
  if (t.rank() == 0) check_same_state(t, first, all, "on rank 0");
  t.check(t.rank() == 0 || first.empty(), "rank {} has {} entries", t.rank(), first.size());
}

// Saved as a full state, loaded into another sharding: the run continues bit for bit.
TESSERA_RANK_TEST("a run goes on from full states in another sharding", "[fsdp][state]") {
  const auto whole = [](StateNet& net) {
    return fsdp::full_state_dict(net, {.rank0_only = false});
  };
  const auto whole_state = [](SGD& sgd) {
    return fsdp::full_optimizer_state(sgd, {.rank0_only = false});
  };
  for (const auto& [from, to] : {std::pair(Sharded::kMixed, Sharded::kFully),
                                 std::pair(Sharded::kFully, Sharded::kReplicated),
                                 std::pair(Sharded::kReplicated, Sharded::kMixed)}) {
    StateNet net, next;
    shard_net(net, {.mesh = t.world().mesh()}, from);
    shard_net(next, {.mesh = t.world().mesh()}, to);
    nn::initialize(net, {.seed = 3});
    SGD sgd(net.parameters(), kSgd), next_sgd(next.parameters(), {.lr = 9, .momentum = 0.1});
    train(net, sgd, 3);
    const nn::StateDict model = fsdp::full_state_dict(net), state = fsdp::full_optimizer_state(sgd);
    fsdp::load_full_state_dict(next, model, {.seed = 3});
    fsdp::load_full_optimizer_state(next_sgd, state);
    check_same_state(t, whole_state(next_sgd), whole_state(sgd), "the optimizer as loaded");
    train(net, sgd, 2, 3);
    train(next, next_sgd, 2, 3);
    check_same_state(t, whole(next), whole(net), "two steps later");
    check_same_state(t, whole_state(next_sgd), whole_state(sgd), "its optimizer");
  }
}

// Saved by all ranks, continued by half of them.
TESSERA_RANK_TEST_WITH("a run goes on on half of the ranks", "[fsdp][state]", {.worlds = {2, 4}}) {
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  SGD sgd(net.parameters(), kSgd), plain_sgd(plain.parameters(), kSgd);
  train(net, sgd, 3);
  train(plain, plain_sgd, 3);
  const nn::StateDict model = fsdp::full_state_dict(net), state = fsdp::full_optimizer_state(sgd);
  if (t.rank() >= t.size() / 2) return;
  std::vector<int> half(static_cast<std::size_t>(t.size() / 2));
  for (std::size_t i = 0; i < half.size(); ++i) half[i] = static_cast<int>(i);
  const distributed::DeviceMesh mesh("dp", t.group().subgroup(half), t.world().device());
  StateNet next;
  shard_net(next, {.mesh = mesh});
  SGD next_sgd(next.parameters(), kSgd);
  fsdp::load_full_state_dict(next, model, {.seed = 3});
  fsdp::load_full_optimizer_state(next_sgd, state);
  train(next, next_sgd, 3, 3);
  train(plain, plain_sgd, 3, 3);
  const std::string difference = compare_with_reference(next, plain, 1e-12);
  t.check(difference.empty(), "{}", difference);
}

TESSERA_RANK_TEST("an unsharded optimizer's state goes into a sharded one", "[fsdp][state]") {
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  AdamW adam(groups_of(net, 0.5)), plain_adam(groups_of(plain, 0.01));
  train(plain, plain_adam, 3);
  const nn::StateDict state = plain_adam.state_dict().clone();
  for (const bool broadcast : {true, false}) {
    fsdp::load_full_optimizer_state(adam, broadcast ? on_rank0(t.rank(), state) : state,
                                    {.broadcast_from_rank0 = broadcast});
    check_same_state(t, fsdp::full_optimizer_state(adam, {.rank0_only = false}), state, "loaded");
    train(net, adam, 1);
  }
}

TESSERA_RANK_TEST("an optimizer without states: before its first step, and plain SGD",
                  "[fsdp][state]") {
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  AdamW adam(groups_of(net, 0.01)), next(groups_of(net, 0.5));
  fsdp::load_full_optimizer_state(next, fsdp::full_optimizer_state(adam));
  t.check(next.lr(0) == 0.01, "lr {}", next.lr(0));
  SGD sgd(net.parameters(), {.lr = 0.1}), other(net.parameters(), {.lr = 0.2});
  train(net, sgd, 1);
  fsdp::load_full_optimizer_state(other, fsdp::full_optimizer_state(sgd));
  t.check(other.lr() == 0.1 && other.steps(net.inner().weight()) == 1, "lr {}, {} steps",
          other.lr(), other.steps(net.inner().weight()));
}

TESSERA_RANK_TEST("states that do not fit an optimizer are errors on all ranks", "[fsdp][state]") {
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  SGD sgd(net.parameters(), kSgd);
  train(net, sgd, 2);
  const nn::StateDict good = fsdp::full_optimizer_state(sgd, {.rank0_only = false});
  const auto check = [&](const std::string& text, const auto& change) {
    nn::StateDict bad = good;
    change(bad);
    const nn::StateDict before = sgd.state_dict().clone();
    t.check_throws<InvalidArgument>(
        text, [&] { fsdp::load_full_optimizer_state(sgd, on_rank0(t.rank(), bad)); });
    check_same_state(t, sgd.state_dict(), before, "after a load that failed");
  };
  check("state.inner.weight.momentum has shape [7, 5], and the parameter [5, 7]",
        [](nn::StateDict& state) {
          state.set("state.inner.weight.momentum", full({7, 5}, 1, {.dtype = DType::kF64}));
        });
  check("state.outer.weight.momentum belongs to no parameter here", [](nn::StateDict& state) {
    state.set("state.outer.weight.momentum", full({5, 7}, 1));
  });
  check("state.inner.bias.momentum is on the null device", [](nn::StateDict& state) {
    state.set("state.inner.bias.momentum",
              Tensor::empty({5}, {.dtype = DType::kF64, .device = kNull}));
  });
  check("state.inner.bias.momentum is missing",
        [](nn::StateDict& state) { state.erase("state.inner.bias.momentum"); });
  check("it is the state of AdamW, and this is SGD",
        [](nn::StateDict& state) { state.set("type", "AdamW"); });
  check("the parameter \"inner.bias\" is in its group 1",
        [](nn::StateDict& state) { state.set("parameters.inner.bias", std::int64_t{1}); });
  StateNet plain;
  nn::initialize(plain, {.seed = 3});
  SGD alone(plain.parameters(), kSgd);
  t.check_throws<InvalidArgument>("fsdp.load_full_optimizer_state",
                                  [&] { fsdp::load_full_optimizer_state(alone, good); });
}

}  // namespace
}  // namespace tessera::testing
