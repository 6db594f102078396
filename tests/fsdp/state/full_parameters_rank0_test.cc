// FullParameters: values only on rank 0, sent back to all ranks; and every error.
#include <catch2/catch.hpp>

#include <optional>

#include "tessera/fsdp/state/full_parameters.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

using fsdp::FullParameters;

void make_net(RankTest& t, StateNet& net, Sharded how = Sharded::kFully) {
  shard_net(net, {.mesh = t.world().mesh()}, how);
  nn::initialize(net, {.seed = 3});
}

nn::StateDict plain_state() {
  StateNet plain;
  nn::initialize(plain, {.seed = 3});
  return nn::state_dict(plain).clone();
}

TESSERA_RANK_TEST("rank0_only: values on rank 0, whose changes reach all", "[fsdp][full]") {
  for (const Sharded how : {Sharded::kFully, Sharded::kReplicated, Sharded::kMixed}) {
    for (const bool writeback : {true, false}) {
      for (const bool offload : {false, true}) {
        StateNet net;
        make_net(t, net, how);
        nn::StateDict expected = plain_state();
        {
          const FullParameters full(
              net, {.writeback = writeback, .rank0_only = true, .offload = offload});
          for (const auto& [name, parameter] : net.named_parameters()) {
            if (t.rank() == 0) {
              t.check_equal(parameter.value().tensor(), expected.tensor(name), name);
            } else {
              t.check_throws<StateError>("is sharded", [&] { parameter.value(); });
            }
          }
          if (t.rank() == 0) fill_(net.inner().weight().value().tensor(), 2);
          if (t.rank() == 0) fill_(net.head().bias().value().tensor(), 3);
        }
        if (writeback) {
          fill_(expected.tensor("inner.weight"), 2);
          fill_(expected.tensor("head.bias"), 3);
        }
        check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), expected, "after");
      }
    }
  }
}

TESSERA_RANK_TEST("rank0_only: gradients too", "[fsdp][full]") {
  StateNet net, plain;
  make_net(t, net);
  nn::initialize(plain, {.seed = 3});
  const Variable x(random_rows(3, 7, DType::kF64, 1));
  backward(mean(square(net(x))));
  backward(mean(square(plain(x))));
  {
    const FullParameters full(net, {.rank0_only = true, .gradients = true});
    for (std::size_t i = 0; i < plain.parameters().size(); ++i) {
      const nn::Parameter parameter = net.parameters()[i];
      const Tensor whole = full.gradient(parameter);
      t.check(whole.defined() == (t.rank() == 0), "{}: a gradient or none", parameter.name());
      if (whole.defined())
        t.check_close(whole, plain.parameters()[i].grad(), {1e-12, 1e-12}, parameter.name());
    }
    if (t.rank() == 0) fill_(full.gradient(net.inner().weight()), 6);
  }
  const Tensor grad = net.inner().weight().grad();
  t.check_equal(grad, full_like(grad, 6), "the gradient that was written");
}

// On the other ranks a guard holds nothing, and never needs more memory than gathering one
// parameter does.
TESSERA_RANK_TEST("rank0_only: no rank needs more to write back than to gather", "[fsdp][full]") {
  const std::int64_t width = 60, depth = 5, bytes = width * width * 8;  // divisible by all worlds
  Chain model({.widths = std::vector<std::int64_t>(depth + 1, width), .classes = 0});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  MemoryCounters& memory = t.world().context()->memory();
  const auto gathered = [&] { return memory.current()[MemoryCategory::kGathered]; };
  memory.reset_peak();
  FullParameters full(model, {.rank0_only = true});
  const std::int64_t to_gather = memory.peak()[MemoryCategory::kGathered];
  const std::int64_t slack = 8 * 1024;  // biases
  if (t.rank() != 0) t.check(gathered() == 0, "{} bytes held", gathered());
  if (t.rank() != 0)
    t.check(to_gather <= bytes + 2 * bytes / t.size() + slack, "{} bytes to gather {}", to_gather,
            bytes);
  if (t.rank() == 0) {
    for (const nn::Parameter& parameter : model.parameters()) fill_(parameter.value().tensor(), 1);
  }
  memory.reset_peak();
  full.close();
  const std::int64_t to_write = memory.peak()[MemoryCategory::kGathered];
  t.check(to_write <= to_gather, "{} bytes to write back, {} to gather", to_write, to_gather);
  for (const nn::Parameter& parameter : model.parameters()) {
    const Tensor& local = parameter.local().tensor();
    t.check_equal(local, full_like(local, 1), parameter.name());
  }
}

TESSERA_RANK_TEST("no guard inside a forward or a backward", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  const Variable x(random_rows(3, 7, DType::kF64, 1));
  const auto opens = [&](nn::Module& module) { const FullParameters full(module); };
  bool in_forward = false;
  HookHandle hook = net.inner().register_forward_hook([&](nn::Module&, const nn::VisitVariables*) {
    in_forward = true;
    t.check_throws<StateError>("is in the middle of a forward or backward", [&] { opens(net); });
    // Also if only an enclosing module runs, and for a part of its group.
    t.check_throws<StateError>("group head is in the middle of a forward or backward",
                               [&] { opens(net.head()); });
    t.check_throws<StateError>("group root is in the middle of a forward or backward",
                               [&] { opens(net.get_submodule("first")); });
  });
  Variable y = net(x);
  hook.remove();
  bool in_backward = false;
  y.register_hook([&](const Variable&) {
    in_backward = true;
    t.check_throws<StateError>("a backward pass runs: open the guard after it",
                               [&] { opens(net); });
    return Variable();
  });
  backward(sum(y));
  t.check(in_forward && in_backward, "the hooks did not run");
  opens(net);
}

TESSERA_RANK_TEST("no guard while gradients wait to be reduced", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  fsdp::of(net).set_requires_gradient_sync(false);
  backward(sum(net(Variable(random_rows(3, 7, DType::kF64, 1)))));
  t.check_throws<StateError>("wait to be reduced: run a backward that reduces, or discard",
                             [&] { const FullParameters full(net); });
  fsdp::of(net).discard_pending_gradients();
  const FullParameters full(net);
}

TESSERA_RANK_TEST("wrong calls of guards", "[fsdp][full]") {
  StateNet net, other;
  shard_net(net, {.mesh = t.world().mesh()});
  t.check_throws<StateError>("has no elements yet", [&] { const FullParameters full(net); });
  nn::initialize(net, {.seed = 3});
  make_net(t, other);
  const Variable x(random_rows(3, 7, DType::kF64, 1));
  {
    FullParameters full(net);
    t.check_throws<StateError>("StateNet runs while a FullParameters guard holds its parameters",
                               [&] { net(x); });
  }
  {
    FullParameters full(net);
    t.check_throws<StateError>(
        "parameter \"first.weight\" is held by an outer guard with rank0_only false and offload "
        "false: give the inner one the same",
        [&] { const FullParameters inner(net, {.rank0_only = true}); });
    t.check_throws<StateError>("give the inner one the same",
                               [&] { const FullParameters inner(net, {.offload = true}); });
    t.check_throws<StateError>("the guard holds no gradients: open one with .gradients = true",
                               [&] { full.gradient(net.inner().weight()); });
  }
  FullParameters full(net, {.gradients = true});
  t.check_throws<InvalidArgument>("it is none of the 7 parameters that the guard holds",
                                  [&] { full.gradient(other.inner().weight()); });
  full.close();
  t.check_throws<StateError>("the guard is closed", [&] { full.gradient(net.inner().weight()); });
  t.check(net(x).shape() == Shape({3, 1}), "the model does not run any more");
}

TESSERA_RANK_TEST("close() throws what a destructor keeps to itself", "[fsdp][full]") {
  for (const bool by_hand : {true, false}) {
    StateNet net;
    make_net(t, net);
    backward(sum(net(Variable(random_rows(3, 7, DType::kF64, 1)))));
    std::optional<FullParameters> full(std::in_place, net,
                                       fsdp::FullParametersOptions{.gradients = true});
    fill_(net.inner().bias().value().tensor(), 2);
    fill_(full->gradient(net.inner().weight()), 6);
    net.inner().weight().zero_grad();
    if (by_hand) {
      t.check_throws<StateError>(
          "the gradient of parameter \"inner.weight\" was written in the guard and dropped since",
          [&] { full->close(); });
    }
    full.reset();
    t.check_throws<StateError>("is sharded", [&] { net.inner().bias().value(); });
    const Tensor& bias = net.inner().bias().local().tensor();
    t.check_equal(bias, full_like(bias, 2), "what could be written back");
  }
}

}  // namespace
}  // namespace tessera::testing
