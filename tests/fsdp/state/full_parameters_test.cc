// FullParameters: temporarily full values in the stored dtype, written back or not, for every kind
// of sharding; nested; between forward and backward; memory; errors.
#include "tessera/fsdp/state/full_parameters.h"

#include <catch2/catch.hpp>

#include <optional>

#include "tessera/autograd/grad_mode.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/transports/process_group_fake.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

using fsdp::FullParameters;

constexpr Sharded kAll[] = {Sharded::kFully, Sharded::kReplicated, Sharded::kMixed};

void make_net(RankTest& t, StateNet& net, Sharded how = Sharded::kFully) {
  shard_net(net, {.mesh = t.world().mesh()}, how);
  nn::initialize(net, {.seed = 3});
}

// Adds `amount` to every value.
void add_to_values(nn::Module& module, double amount) {
  for (const nn::Parameter& parameter : module.parameters()) {
    const Tensor& value = parameter.value().tensor();
    copy_(value, tessera::add(value, full_like(value, amount)));
  }
}

// The unsharded model with `amount` added to every parameter.
nn::StateDict shifted_state(double amount) {
  StateNet plain;
  nn::initialize(plain, {.seed = 3});
  for (const nn::Parameter& parameter : plain.parameters()) {
    const Tensor& local = parameter.local().tensor();
    copy_(local, tessera::add(local, full_like(local, amount)));
  }
  return nn::state_dict(plain).clone();
}

nn::StateDict whole_state(StateNet& net) {
  return fsdp::full_state_dict(net, {.rank0_only = false});
}

TESSERA_RANK_TEST("in a guard values are whole, and afterwards as before", "[fsdp][full]") {
  const nn::StateDict expected = shifted_state(0);
  for (const Sharded how : kAll) {
    StateNet net;
    make_net(t, net, how);
    std::vector<nn::ParameterState> states;
    for (const nn::Parameter& parameter : net.parameters()) states.push_back(parameter.state());
    {
      const FullParameters full(net);
      for (const auto& [name, parameter] : net.named_parameters()) {
        t.check_equal(parameter.value().tensor(), expected.tensor(name), name);
        t.check(!parameter.value().requires_grad() && parameter.requires_grad(),
                "{}: the value needs a gradient", name);
      }
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      t.check(net.parameters()[i].state() == states[i], "{} is {}", net.parameters()[i].name(),
              nn::parameter_state_name(net.parameters()[i].state()));
    }
    check_same_state(t, whole_state(net), expected, "after a guard that only looked");
    t.check_throws<StateError>("hold a FullParameters guard", [&] {
      for (const nn::Parameter& parameter : net.parameters()) parameter.value();
    });
  }
}

TESSERA_RANK_TEST("what is written goes back, or is lost", "[fsdp][full]") {
  for (const Sharded how : kAll) {
    for (const bool writeback : {true, false}) {
      StateNet net, plain;
      make_net(t, net, how);
      nn::initialize(plain, {.seed = 3});
      nn::load_state_dict(plain, shifted_state(writeback ? 0.5 : 0), {.seed = 3});
      // The second guard is closed by hand.
      FullParameters full(net, {.writeback = writeback});
      add_to_values(net, 0.5);
      full.close();
      full.close();
      check_same_state(t, whole_state(net), nn::state_dict(plain), "after the guard");
      // The next step computes with the written values: its gathers are not stale.
      nn::optim::SGD sgd(net.parameters(), kSgd), plain_sgd(plain.parameters(), kSgd);
      train(net, sgd, 2);
      train(plain, plain_sgd, 2);
      const std::string difference = compare_with_reference(net, plain, 1e-12);
      t.check(difference.empty(), "{}", difference);
    }
  }
}

// Only written values change their version, so reading does not invalidate saved values.
TESSERA_RANK_TEST("a guard writes back what was written and nothing else", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  std::vector<std::uint64_t> versions;
  for (const nn::Parameter& p : net.parameters()) versions.push_back(p.local().tensor().version());
  {
    const FullParameters full(net);
    fill_(net.inner().bias().value().tensor(), 2);
  }
  std::size_t moved = 0;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const nn::Parameter parameter = net.parameters()[i];
    if (parameter.local().tensor().version() == versions[i]) continue;
    ++moved;
    t.check(parameter.same_as(net.inner().bias()), "{} moved", parameter.name());
  }
  t.check(moved == 1, "{} parameters moved", moved);
}

TESSERA_RANK_TEST("changes go back also after an exception", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  t.check_throws<DataError>("stop", [&] {
    const FullParameters full(net);
    add_to_values(net, 0.25);
    throw_error<DataError>("test", "stop");
  });
  check_same_state(t, whole_state(net), shifted_state(0.25), "after the exception");
  t.check_throws<StateError>("is sharded", [&] { net.head().weight().value(); });
}

TESSERA_RANK_TEST("values are in the stored dtype under mixed precision and offload",
                  "[fsdp][full]") {
  StateNet plain(DType::kF32);
  nn::initialize(plain, {.seed = 3});
  for (const bool offload : {false, true}) {
    StateNet net(DType::kF32);
    shard_net(net, {.mesh = t.world().mesh(),
                    .reshard_after_forward = false,
                    .mixed_precision = {.param_dtype = DType::kBF16},
                    .offload = offload ? std::optional(fsdp::CpuOffload{}) : std::nullopt});
    nn::initialize(net, {.seed = 3});
    const Variable x(random_rows(3, 7, DType::kF32, 1));
    const Variable before = net(x);
    {
      const FullParameters full(net, {.offload = offload});
      for (std::size_t i = 0; i < plain.parameters().size(); ++i) {
        t.check_equal(net.parameters()[i].value().tensor(), plain.parameters()[i].local().tensor(),
                      plain.parameters()[i].name());
      }
      fill_(net.head().bias().value().tensor(), 3);
    }
    t.check_equal(fsdp::full_state_dict(net, {.rank0_only = false}).tensor("head.bias"),
                  full({1}, 3), "written back");
    const NoGradGuard no_grad;
    t.check(net(x).dtype() == before.dtype(), "forward answers {}", dtype_name(net(x).dtype()));
  }
}

// Like a user's own initialisation: module by module, on full values, in a model that was sharded
// without values, in groups that each own parameters; and on shards.
TESSERA_RANK_TEST("apply() on a model sharded without values, computing in f32", "[fsdp][full]") {
  const auto draw = [](nn::Module& module) {
    for (const nn::NamedParameter& named : module.own_parameters()) {
      const Tensor& value = named.parameter.value().tensor();
      random::fill_normal(value, random::named_key(8, named.parameter.name()),
                          random::whole(value.shape()), 0, 0.5);
    }
  };
  const auto halve = [](nn::Module& module) {
    for (const nn::NamedParameter& named : module.own_parameters())
      mul_(named.parameter.local().tensor(), 0.5);
  };
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh(), .mixed_precision = {.param_dtype = DType::kF32}});
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  const auto compare = [&](const char* when) {
    check_same_state(t, whole_state(net), nn::state_dict(plain), when);
    const Variable x(random_rows(3, 7, DType::kF64, 1));
    const double error = worst_error(net(x).tensor(), plain(x).tensor());
    t.check(error > 0 && error < 1e-5, "{}: results differ by {}", when, error);
  };
  compare("as initialised");  // what this gathers, and the root keeps, is old afterwards
  FullParameters full(net);
  net.apply(draw);
  full.close();
  plain.apply(draw);
  compare("drawn on whole values");
  net.apply(halve);
  plain.apply(halve);
  compare("halved on shards");
}

TESSERA_RANK_TEST("recurse = false leaves sharded modules below alone", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  {
    const NoGradGuard no_grad;  // otherwise inner, as a root, would keep its value
    const FullParameters full(net, {.recurse = false});
    t.check(net.parameters().front().value().shape() == Shape({7, 7}), "the root's own");
    t.check_throws<StateError>("is sharded", [&] { net.inner().weight().value(); });
    t.check_throws<StateError>("is sharded", [&] { net.head().weight().value(); });
    // Modules outside the guard may run, and so may modules without a state.
    const Variable y = net.inner()(Variable(random_rows(2, 7, DType::kF64, 1)));
    t.check(y.shape() == Shape({2, 5}), "inner answers {}", y.shape().str());
  }
  // A module inside a group: only its own parameters of the group are full.
  nn::Module& first = net.get_submodule("first");
  const FullParameters full(first);
  t.check(first.parameters().front().value().shape() == Shape({7, 7}), "a part of a group");
  t.check_throws<StateError>("is sharded", [&] { net.inner().weight().value(); });
}

TESSERA_RANK_TEST("a plain module above several sharded ones, and layers that run in a guard",
                  "[fsdp][full]") {
  class Pair final : public nn::Layer<Pair> {
   public:
    Pair() {
      register_module("first", first);
      register_module("second", second);
      register_module("plain", plain);
    }
    Variable forward(const Variable& x) { return plain(second(first(x))); }
    nn::Linear first{{.in = 3, .out = 5}}, second{{.in = 5, .out = 3}}, plain{{.in = 3, .out = 2}};
  };
  Pair pair, reference;
  fsdp::fully_shard(pair.first, {.mesh = t.world().mesh()});
  fsdp::fully_shard(pair.second, {.mesh = t.world().mesh()});
  nn::initialize(pair, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  FullParameters full(pair);
  t.check_equal(pair.first.weight().value().tensor(), reference.first.weight().local().tensor(),
                "first");
  t.check_equal(pair.second.bias().value().tensor(), reference.second.bias().local().tensor(),
                "second");
  // Unsharded parameters are unchanged: their values require gradients, and grad() is their own.
  t.check(pair.plain.weight().value().requires_grad(), "plain needs no gradient");
  const Variable x(random_rows(2, 3, DType::kF32, 1));
  t.check_equal(pair.plain(x).tensor(), reference.plain(x).tensor(), "plain runs");
  t.check_throws<StateError>("Linear runs while a FullParameters guard holds its parameters",
                             [&] { pair.first(x); });
  full.close();
  t.check_equal(pair(x).tensor(), reference(x).tensor(), "afterwards");
}

// A tied parameter has one value: a write through one handle is visible through the other.
TESSERA_RANK_TEST("a tied parameter is gathered once", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  const auto before = distributed::collective_counters().collectives;
  FullParameters full(net);
  const auto gathers = distributed::collective_counters().collectives - before;
  const std::int64_t expected =
      t.size() == 1 ? 0 : static_cast<std::int64_t>(net.parameters().size());
  t.check(gathers == expected, "{} gathers, expected {}", gathers, expected);
  fill_(net.get_parameter("first.weight").value().tensor(), 4);
  t.check_equal(net.get_parameter("tied.weight").value().tensor(),
                tessera::full({7, 7}, 4, {.dtype = DType::kF64}), "tied");
}

TESSERA_RANK_TEST("guards nest: the inner one shares what the outer one holds", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  const Tensor two = full({5}, 2, {.dtype = DType::kF64});
  {
    const FullParameters outer(net, {.writeback = false});
    nn::Parameter& bias = net.inner().bias();
    fill_(bias.value().tensor(), 2);
    const auto before = distributed::collective_counters().collectives;
    {
      const FullParameters inner(net.inner());
      t.check(distributed::collective_counters().collectives == before, "the inner one gathers");
      t.check_equal(bias.value().tensor(), two, "the outer one's change");
    }
    t.check_equal(bias.value().tensor(), two, "still held");
    fill_(bias.value().tensor(), 7);  // lost
  }
  t.check_equal(whole_state(net).tensor("inner.bias"), two, "written by the inner one");
  // If the guards close in the other order, the values stay until the last one closes.
  std::optional<FullParameters> first, second;
  first.emplace(net);
  second.emplace(net.inner());
  first.reset();
  t.check(net.inner().bias().value().shape() == Shape({5}), "the second one holds");
  t.check_throws<StateError>("is sharded", [&] { net.head().bias().value(); });
  second.reset();
  t.check_throws<StateError>("is sharded", [&] { net.inner().bias().value(); });
}

// Reading between forward and backward: gathered values stay gathered, and gradients are correct.
TESSERA_RANK_TEST("a guard between forward and backward", "[fsdp][full]") {
  for (const bool reshard : {true, false}) {
    StateNet net, plain;
    shard_net(net, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    nn::initialize(net, {.seed = 3});
    nn::initialize(plain, {.seed = 3});
    const Variable x(random_rows(3, 7, DType::kF64, 1));
    const Variable loss = mean(square(net(x)));
    const fsdp::GroupState state = fsdp::of(net.inner()).state();
    {
      const FullParameters full(net);
      t.check_equal(net.inner().weight().value().tensor(), plain.inner().weight().local().tensor(),
                    "in the guard");
    }
    t.check(fsdp::of(net.inner()).state() == state, "the group is {}",
            fsdp::group_state_name(fsdp::of(net.inner()).state()));
    backward(loss);
    backward(mean(square(plain(x))));
    const std::string difference = compare_with_reference(net, plain, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "{}", difference);
    MemoryCounters& memory = t.world().context()->memory();
    t.check(memory.current()[MemoryCategory::kGathered] == 0, "{} gathered bytes left",
            memory.current()[MemoryCategory::kGathered]);
  }
}

TESSERA_RANK_TEST("a write between forward and backward is found in backward", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  const Variable loss = mean(square(net(Variable(random_rows(3, 7, DType::kF64, 1)))));
  {
    const FullParameters full(net);
    add_to_values(net, 1);
  }
  t.check_throws<StateError>("was written between forward and backward", [&] { backward(loss); });
}

TESSERA_RANK_TEST("whole gradients are there, and go back", "[fsdp][full]") {
  for (const Sharded how : kAll) {
    StateNet net, plain;
    make_net(t, net, how);
    nn::initialize(plain, {.seed = 3});
    net.head().bias().set_requires_grad(false);
    plain.head().bias().set_requires_grad(false);
    const Variable x(random_rows(3, 7, DType::kF64, 1));
    backward(mean(square(net(x))));
    backward(mean(square(plain(x))));
    {
      const FullParameters full(net, {.gradients = true});
      for (std::size_t i = 0; i < plain.parameters().size(); ++i) {
        const nn::Parameter parameter = net.parameters()[i], other = plain.parameters()[i];
        const Tensor whole = full.gradient(parameter);
        t.check(whole.defined() == other.grad().defined(), "{}: a gradient or none",
                parameter.name());
        if (whole.defined()) t.check_close(whole, other.grad(), {1e-12, 1e-12}, parameter.name());
      }
      fill_(full.gradient(net.inner().weight()), 6);
    }
    const Tensor grad = net.inner().weight().grad();
    t.check_equal(grad, full_like(grad, 6), "the gradient that was written");
    t.check(!net.head().bias().grad().defined(), "a gradient for what is frozen");
  }
}

TESSERA_RANK_TEST_WITH("a guard on a queued stream", "[fsdp][full]",
                       {.cpu_compute = StreamKind::kQueued}) {
  StateNet net, plain;
  make_net(t, net);
  nn::initialize(plain, {.seed = 3});
  nn::load_state_dict(plain, shifted_state(0.5), {.seed = 3});
  nn::optim::SGD sgd(net.parameters(), kSgd), plain_sgd(plain.parameters(), kSgd);
  for (const bool rank0_only : {false, true}) {
    {
      const FullParameters full(net, {.rank0_only = rank0_only});
      if (!rank0_only) add_to_values(net, 0.5);
    }
    train(net, sgd, 2);
    train(plain, plain_sgd, 2);
    const std::string difference = compare_with_reference(net, plain, 1e-12);
    t.check(difference.empty(), "{}", difference);
  }
}

// A plan for a large world: the bytes of a guard there, without allocating them.
TEST_CASE("a guard on the null device in a fake world", "[fsdp][full]") {
  const auto group = distributed::make_fake_group("plan", {.rank = 1000, .size = 4096});
  const distributed::DeviceMesh mesh("data", group, kNull);
  StateNet net;
  shard_net(net, {.mesh = mesh});
  nn::initialize(net, {.seed = 3, .device = kNull});
  for (const bool rank0_only : {false, true}) {
    FullParameters full(net, {.rank0_only = rank0_only, .gradients = true});
    if (!rank0_only) CHECK(net.inner().weight().value().shape() == Shape({5, 7}));
    full.close();
  }
  CHECK(net.inner().weight().state() == nn::ParameterState::kSharded);
}

// Besides the shards a guard allocates the full values, and frees them.
TESSERA_RANK_TEST("a guard's bytes are gathered bytes, and end with it", "[fsdp][full]") {
  StateNet net;
  make_net(t, net);
  MemoryCounters& memory = t.world().context()->memory();
  const MemoryReading before = memory.current();
  std::int64_t whole = 0;  // with padding rows
  for (const nn::Parameter& parameter : net.parameters()) {
    const Shape& shape = parameter.shape();
    const std::int64_t rows = (shape[0] + t.size() - 1) / t.size() * t.size();
    const auto bytes = static_cast<std::size_t>(shape.numel() / shape[0] * rows * 8);
    whole += counted_bytes(default_device().type, bytes);
  }
  {
    const FullParameters full(net);
    const std::int64_t held =
        memory.current()[MemoryCategory::kGathered] - before[MemoryCategory::kGathered];
    t.check(held == whole, "{} bytes held, expected {}", held, whole);
  }
  for (int category = 0; category < kMemoryCategories; ++category) {
    const auto which = static_cast<MemoryCategory>(category);
    t.check(memory.current()[which] == before[which], "{} bytes of {}, {} before",
            memory.current()[which], memory_category_name(which), before[which]);
  }
}

}  // namespace
}  // namespace tessera::testing
