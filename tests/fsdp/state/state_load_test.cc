// load_full_state_dict: from rank 0's full tensors to every rank's shards.
#include <catch2/catch.hpp>

#include <optional>

#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

nn::StateDict plain_state(std::uint64_t seed) {
  StateNet plain;
  nn::initialize(plain, {.seed = seed});
  fill_(plain.calls().tensor(), 5);
  return nn::state_dict(plain).clone();
}

// The state on rank 0, an empty one elsewhere.
nn::StateDict on_rank0(const RankTest& t, const nn::StateDict& state) {
  return const_cast<RankTest&>(t).rank() == 0 ? state : nn::StateDict();
}

// Rank 0's full state loaded into a sharded model that is not materialized: values, loss and
// gradients are those of the unsharded model.
TESSERA_RANK_TEST("a full state on rank 0 makes a sharded model that has no elements",
                  "[fsdp][state]") {
  const nn::StateDict state = plain_state(4);
  StateNet plain;
  nn::initialize(plain, {.seed = 1});
  nn::load_state_dict(plain, state);
  for (const Sharded how : {Sharded::kFully, Sharded::kReplicated, Sharded::kMixed}) {
    StateNet net;
    shard_net(net, {.mesh = t.world().mesh()}, how);
    const nn::LoadReport report = fsdp::load_full_state_dict(net, on_rank0(t, state));
    t.check(report.missing.empty() && report.unexpected.empty(), "a report of a perfect load");
    check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), state, "loaded");
    t.check_equal(net.table().tensor(), plain.table().tensor(), "not persistent: computed");
    t.check(net.inner().weight().name() == "inner.weight", "named {}", net.inner().weight().name());
    const Variable x(random_rows(3, 7, DType::kF64, 1));
    const Variable loss = mean(square(net(x))), expected = mean(square(plain(x)));
    t.check_close(loss.tensor(), expected.tensor(), {1e-12, 1e-12}, "loss");
    backward(loss);
    backward(expected);
    const std::string difference = compare_with_reference(net, plain, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "{}", difference);
    for (nn::Parameter parameter : plain.parameters()) parameter.zero_grad();
  }
}

TESSERA_RANK_TEST("a load writes in place, and into any dtype", "[fsdp][state]") {
  const nn::StateDict state = plain_state(4);
  StateNet net(DType::kF32);
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 9});
  const Tensor before = net.inner().weight().local().tensor();
  const std::uint64_t version = before.version();
  fsdp::load_full_state_dict(net, on_rank0(t, state));
  t.check(net.inner().weight().local().tensor().storage() == before.storage(), "another storage");
  t.check(before.numel() == 0 || before.version() > version, "the version did not move");
  t.check_equal(fsdp::full_state_dict(net, {.rank0_only = false}).tensor("inner.weight"),
                cast(state.tensor("inner.weight"), DType::kF32), "as f32");
}

// A head of other classes, and a name that the model has not, are left alone.
TESSERA_RANK_TEST("a load of names that match patterns leaves the rest alone", "[fsdp][state]") {
  nn::StateDict state = plain_state(4);
  state.set("head.weight", zeros({3, 5}, {.dtype = DType::kF64, .device = kCpu}));
  state.set("other.weight", zeros({2}, {.device = kCpu}));
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 9});
  const nn::StateDict before = fsdp::full_state_dict(net, {.rank0_only = false}).clone();
  const nn::LoadReport report = fsdp::load_full_state_dict(
      net, on_rank0(t, state), {.only = {"inner.*", "**.bias", "calls"}});
  t.check(report.missing.empty() && report.unexpected.empty(), "a report of what was left alone");
  const nn::StateDict after = fsdp::full_state_dict(net, {.rank0_only = false});
  for (const auto& [name, value] : after) {
    const bool loaded = name == "inner.weight" || name == "calls" || name.ends_with(".bias");
    t.check_equal(std::get<Tensor>(value), (loaded ? state : before).tensor(name), name.c_str());
  }
  t.check_throws<InvalidArgument>("the pattern \"iner.*\" matches no name in it", [&] {
    fsdp::load_full_state_dict(net, on_rank0(t, state), {.only = {"inner.*", "iner.*"}});
  });
  t.check_throws<InvalidArgument>("\"head.weight\" has shape [3, 5]", [&] {
    fsdp::load_full_state_dict(net, on_rank0(t, state), {.only = {"head.**"}});
  });
  t.check_throws<InvalidArgument>("; .only = {\"blocks.**\"} loads the names", [&] {
    fsdp::load_full_state_dict(net, on_rank0(t, state), {.only = {"head.**"}});
  });
  state.erase("inner.bias");
  t.check_throws<InvalidArgument>("\"inner.bias\" (f64 [5]) is missing", [&] {
    fsdp::load_full_state_dict(net, on_rank0(t, state), {.only = {"inner.*"}});
  });
  t.check_throws<InvalidArgument>("\"other.weight\" (f32 [2]) is unexpected", [&] {
    fsdp::load_full_state_dict(net, on_rank0(t, state), {.only = {"inner.weight", "other.*"}});
  });
}

TESSERA_RANK_TEST("with the dict on every rank a load does not communicate", "[fsdp][state]") {
  const nn::StateDict state = plain_state(4);
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  const auto before = distributed::collective_counters();
  fsdp::load_full_state_dict(net, state, {.broadcast_from_rank0 = false});
  const auto after = distributed::collective_counters();
  t.check(after.collectives == before.collectives, "{} collectives",
          after.collectives - before.collectives);
  check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), state, "loaded");
}

TESSERA_RANK_TEST("a load of what nobody sharded needs a mesh", "[fsdp][state]") {
  const nn::StateDict state = plain_state(4);
  StateNet net;
  t.check_throws<InvalidArgument>(
      "no parameter is sharded, so nothing says which ranks load together: pass .mesh",
      [&] { fsdp::load_full_state_dict(net, state); });
  fsdp::load_full_state_dict(net, on_rank0(t, state), {.mesh = t.world().mesh()});
  check_same_state(t, nn::state_dict(net), state, "unsharded");
}

// All ranks report names that rank 0's dict lacks and unexpected names, and nothing is written.
TESSERA_RANK_TEST("names missing and unexpected are errors on all ranks", "[fsdp][state]") {
  nn::StateDict state = plain_state(4);
  state.erase("inner.bias");
  state.set("inner.extra", full({2, 3}, 1));
  state.set("epoch", std::int64_t{7});
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 9});
  const nn::StateDict before = nn::state_dict(net).clone();
  const std::string text =
      "\"inner.bias\" (f64 [5]) is missing; \"inner.extra\" (f32 [2, 3]) is unexpected; \"epoch\" "
      "(integer) is unexpected; load with .strict = false";
  t.check_throws<InvalidArgument>(text,
                                  [&] { fsdp::load_full_state_dict(net, on_rank0(t, state)); });
  check_same_state(t, nn::state_dict(net), before, "after a load that failed");
  const nn::LoadReport report =
      fsdp::load_full_state_dict(net, on_rank0(t, state), {.strict = false});
  t.check(report.missing == std::vector<std::string>{"inner.bias"} &&
              report.unexpected == std::vector<std::string>{"inner.extra", "epoch"},
          "missing {}, unexpected {}", fmt::join(report.missing, " "),
          fmt::join(report.unexpected, " "));
  t.check_equal(net.inner().bias().local().tensor(), before.tensor("inner.bias"), "left alone");
  const nn::StateDict loaded = fsdp::full_state_dict(net, {.rank0_only = false});
  t.check_equal(loaded.tensor("inner.weight"), state.tensor("inner.weight"), "taken");
}

TESSERA_RANK_TEST("an empty dict on rank 0 misses everything", "[fsdp][state]") {
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  const nn::LoadReport report = fsdp::load_full_state_dict(net, {}, {.strict = false});
  t.check(report.missing.size() == plain_state(1).size(), "{} missing", report.missing.size());
  t.check(!net.inner().weight().is_materialized(), "made from nothing");
  t.check_throws<InvalidArgument>("\"first.weight\" (f64 [7, 7]) is missing",
                                  [&] { fsdp::load_full_state_dict(net, {}); });
}

TESSERA_RANK_TEST("entries that do not fit are errors on all ranks", "[fsdp][state]") {
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 9});
  const nn::StateDict before = nn::state_dict(net).clone();
  const auto check = [&](const std::string& name, const nn::StateValue& value,
                         const std::string& text) {
    nn::StateDict state = plain_state(4);
    state.set(name, value);
    t.check_throws<InvalidArgument>(
        text, [&] { fsdp::load_full_state_dict(net, on_rank0(t, state), {.strict = false}); });
  };
  check("inner.weight", full({5, 6}, 1), "\"inner.weight\" has shape [5, 6], in the model [5, 7]");
  check("inner.weight", std::int64_t{1}, "\"inner.weight\" is no tensor (integer)");
  check("calls", full({}, 1), "\"calls\" is f32 (floating), in the model i64 (integer)");
  check("inner.bias", Tensor::empty({5}, {.dtype = DType::kF64, .device = kNull}),
        "\"inner.bias\" is on the null device: it has no elements");
  check("tied.weight", full({7, 7}, 1, {.dtype = DType::kF64}),
        "\"first.weight\" and \"tied.weight\" are tied in the model and differ in the state");
  check_same_state(t, nn::state_dict(net), before, "after loads that failed");
}

TESSERA_RANK_TEST("something tied is found under any of its names", "[fsdp][state]") {
  nn::StateDict state = plain_state(4);
  const Tensor weight = state.tensor("first.weight");
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  state.set("tied.weight", clone(weight));  // under both names
  fsdp::load_full_state_dict(net, on_rank0(t, state));
  state.erase("first.weight");  // only under the second name
  fill_(state.tensor("tied.weight"), 2);
  fsdp::load_full_state_dict(net, on_rank0(t, state));
  t.check_equal(fsdp::full_state_dict(net, {.rank0_only = false}).tensor("first.weight"),
                full_like(weight, 2), "by its other name");
}

TESSERA_RANK_TEST("hooks rename before a load and forgive after it", "[fsdp][state]") {
  nn::StateDict state = plain_state(4);
  const Tensor weight = state.tensor("inner.weight");
  state.erase("inner.weight");
  state.set("inner.kernel", weight);
  state.erase("head.bias");
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 9});
  net.inner().state_dict_hooks().before_load.add(
      [](nn::Module&, nn::StateDict& loaded, const std::string& prefix) {
        loaded.set(prefix + "weight", loaded.tensor(prefix + "kernel"));
        loaded.erase(prefix + "kernel");
      });
  HookHandle forgives = net.state_dict_hooks().after_load.add(
      [](nn::Module&, nn::LoadReport& report) { std::erase(report.missing, "head.bias"); });
  const nn::LoadReport report = fsdp::load_full_state_dict(net, on_rank0(t, state));
  t.check(report.missing.empty(), "{} missing", report.missing.size());
  t.check_equal(fsdp::full_state_dict(net, {.rank0_only = false}).tensor("inner.weight"), weight,
                "renamed");
  forgives.remove();
  t.check_throws<InvalidArgument>("\"head.bias\"",
                                  [&] { fsdp::load_full_state_dict(net, on_rank0(t, state)); });
}

// Experts with different names on the ranks: each rank takes those that it knows.
TESSERA_RANK_TEST("ranks of other names take what is theirs from one dict", "[fsdp][state]") {
  class Expert final : public nn::Layer<Expert> {
   public:
    explicit Expert(int index) {
      register_module("shared", shared_);
      register_module("expert" + std::to_string(index), own_);
    }
    Variable forward(const Variable& x) { return own_(shared_(x)); }
    nn::Linear& own() { return own_; }

   private:
    nn::Linear shared_{{.in = 3, .out = 3}}, own_{{.in = 3, .out = 2}};
  };
  nn::StateDict state;
  for (int index = 0; index < t.size(); ++index) {
    Expert whole(index);
    nn::initialize(whole, {.seed = 1});
    for (const auto& [name, value] : nn::state_dict(whole).clone()) state.set(name, value);
  }
  Expert model(t.rank());
  const distributed::DeviceMesh alone("own", t.group().subgroup({t.rank()}), t.world().device());
  fsdp::fully_shard(model.own(), {.mesh = alone});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  fsdp::load_full_state_dict(model, on_rank0(t, state));
  const nn::StateDict loaded = fsdp::full_state_dict(model, {.rank0_only = false});
  for (const auto& [name, value] : loaded)
    t.check_equal(std::get<Tensor>(value), state.tensor(name), name);
  // A name that no rank knows is unexpected, and a name that one rank lacks is missing, on all
  // ranks.
  const std::string last = "expert" + std::to_string(t.size() - 1);
  state.erase(last + ".bias");
  state.set("expert99.bias", full({2}, 1));
  const nn::LoadReport report =
      fsdp::load_full_state_dict(model, on_rank0(t, state), {.strict = false});
  t.check(report.missing == std::vector<std::string>{last + ".bias"} &&
              report.unexpected == std::vector<std::string>{"expert99.bias"},
          "missing {}, unexpected {}", fmt::join(report.missing, " "),
          fmt::join(report.unexpected, " "));
}

// Rank 0 also has the dict; the other ranks never have more than their shards and one full tensor.
TESSERA_RANK_TEST("a load needs one whole tensor beside the shards", "[fsdp][state]") {
  const std::int64_t width = 64, depth = 6, bytes = width * width * 8;
  const ChainOptions options = {.widths = std::vector<std::int64_t>(depth + 1, width),
                                .classes = 0};
  std::optional<Chain> plain;
  nn::StateDict state;
  if (t.rank() == 0) {
    nn::initialize(plain.emplace(options), {.seed = 1});
    state = nn::state_dict(*plain);
  }
  Chain model(options);
  shard_chain(model, {.mesh = t.world().mesh()});
  MemoryCounters& memory = t.world().context()->memory();
  const std::int64_t before = memory.current().total();
  memory.reset_peak();
  fsdp::load_full_state_dict(model, state);
  const std::int64_t shard = (width + t.size() - 1) / t.size() * width * 8;
  const std::int64_t slack = 16 * 1024;
  t.check(memory.current().total() - before <= depth * shard + slack,
          "{} bytes kept for shards of {}", memory.current().total() - before, depth * shard);
  t.check(memory.peak_total() - before <= depth * shard + bytes + slack,
          "peak of {} bytes, shards have {}, a tensor {}", memory.peak_total() - before,
          depth * shard, bytes);
}

TESSERA_RANK_TEST("a module that was never registered is found by a load", "[fsdp][state]") {
  class Forgetful final : public nn::Layer<Forgetful> {
   public:
    Variable forward(const Variable& x) { return inner_(x); }

   private:
    nn::Linear inner_{{.in = 2, .out = 2}};
  };
  Forgetful model;
  t.check_throws<StateError>("fsdp.load_full_state_dict",
                             [&] { fsdp::load_full_state_dict(model, {}); });
}

}  // namespace
}  // namespace tessera::testing
