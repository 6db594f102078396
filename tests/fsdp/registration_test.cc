// The states of a group and of its parameters before and after forward and backward, for each value
// of reshard_after_forward; the values themselves never change.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::GroupState;
using nn::ParameterState;

constexpr std::int64_t kDim = 3;

/// Two MLPs: each layer of the first is a group, the second is one group, and the root has a layer
/// of its own.
struct Nested {
  Nested() {
    net.add<MLP>({.dim = kDim, .dtype = DType::kF64});
    net.add<MLP>({.dim = kDim, .dtype = DType::kF64});
    net.add<nn::Linear>({.in = kDim, .out = kDim, .dtype = DType::kF64});
  }
  void shard(const fsdp::FullyShardOptions& options) {
    for (const char* name : {"0.in_proj", "0.out_proj", "0", "1", ""})
      fsdp::fully_shard(net.get_submodule(name), options);
  }
  nn::Sequential net;
};

/// Checks the group's state and the states of all its parameters.
void check_group(RankTest& t, const std::string& what, nn::Module& model, const std::string& name,
                 GroupState expected) {
  nn::Module& module = model.get_submodule(name);
  const fsdp::Handle handle = fsdp::of(module);
  if (!handle.has_group()) return;
  t.check(handle.state() == expected, "{}: group \"{}\" is {}, expected {}", what, name,
          fsdp::group_state_name(handle.state()), fsdp::group_state_name(expected));
  const ParameterState state = expected == GroupState::kFull          ? ParameterState::kFull
                               : expected == GroupState::kPostForward ? ParameterState::kPostForward
                                                                      : ParameterState::kSharded;
  for (const std::string& parameter : handle.parameter_names()) {
    const nn::Parameter each = model.get_parameter(parameter);
    t.check(each.state() == state, "{}: {} is {}, expected {}", what, parameter,
            nn::parameter_state_name(each.state()), nn::parameter_state_name(state));
    if (state == ParameterState::kFull) {
      t.check(each.value().shape() == each.spec().global_shape, "{}: {} has a value {}", what,
              parameter, each.value().shape().str());
    } else {
      t.check_throws<StateError>(parameter, [&] { each.value(); });
    }
  }
}

const std::vector<std::string>& inner_groups() {
  static const std::vector<std::string> names = {"0.in_proj", "0.out_proj", "0", "1"};
  return names;
}

/// Unshards every group in turn and compares its values with the reference's.
void check_full_values(RankTest& t, const std::string& what, nn::Module& model,
                       const nn::Module& reference) {
  for (nn::Module* module : fsdp::sharded_modules(model)) fsdp::of(*module).unshard();
  const auto left = model.named_parameters(), right = reference.named_parameters();
  for (std::size_t i = 0; i < left.size(); ++i)
    t.check_equal(left[i].parameter.value().tensor(), right[i].parameter.value().tensor(),
                  what + ": " + left[i].name);
  for (nn::Module* module : fsdp::sharded_modules(model)) fsdp::of(*module).reshard();
}

struct Setting {
  const char* name;
  fsdp::ReshardAfterForward value;
  GroupState inner, root;  ///< after forward
};
std::vector<Setting> settings(const RankTest& t) {
  constexpr auto kSharded = GroupState::kSharded, kFull = GroupState::kFull;
  std::vector<Setting> out = {{"unset", {}, kSharded, kFull},
                              {"true", true, kSharded, kSharded},
                              {"false", false, kFull, kFull}};
  if (t.size() % 2 != 0) return out;
  const GroupState part = t.size() == 2 ? kSharded : GroupState::kPostForward;
  out.push_back({"2", 2, part, part});
  return out;
}

TESSERA_RANK_TEST_WITH("fsdp registration: states around forward and backward", "[fsdp]",
                       {.worlds = {1, 2, 3, 4}}) {
  for (const Setting& setting : settings(t)) {
    const std::string what = fmt::format("reshard {}", setting.name);
    Nested model, reference;
    model.shard({.mesh = t.world().mesh(), .reshard_after_forward = setting.value});
    nn::initialize(model.net, {.seed = 1});
    nn::initialize(reference.net, {.seed = 1});
    const auto check_all = [&](const std::string& when, GroupState inner, GroupState root) {
      for (const std::string& name : inner_groups())
        check_group(t, what + ", " + when, model.net, name, inner);
      check_group(t, what + ", " + when, model.net, "", root);
    };
    for (int round = 0; round < 2; ++round) {
      check_all("before forward", GroupState::kSharded, GroupState::kSharded);
      const Variable y = model.net(Variable(random_rows(2, kDim, DType::kF64, 1)));
      check_all("after forward", setting.inner, setting.root);
      check_full_values(t, what, model.net, reference.net);
      check_all("after reshard()", GroupState::kSharded, GroupState::kSharded);
      backward(local_loss(y));
      check_all("after backward", GroupState::kSharded, GroupState::kSharded);
      check_full_values(t, what + ", after backward", model.net, reference.net);
    }
  }
}

// One rank has nothing to send: releasing values would only mean that they are cast again.
TESSERA_RANK_TEST("fsdp registration: one rank keeps values that were cast until backward",
                  "[fsdp]") {
  const fsdp::FullyShardOptions casts = {.mesh = t.world().mesh(),
                                         .mixed_precision = {.param_dtype = DType::kF32}};
  fsdp::FullyShardOptions told = casts, offloaded = casts;
  told.reshard_after_forward = true;
  offloaded.offload = fsdp::CpuOffload{};
  const auto state_after_forward = [&](const fsdp::FullyShardOptions& options) {
    Nested model;
    model.shard(options);
    nn::initialize(model.net, {.seed = 1});
    const Variable y = model.net(Variable(random_rows(2, kDim, DType::kF64, 1)));
    const GroupState state = fsdp::of(model.net.get_submodule("1")).state();
    backward(local_loss(y));
    check_group(t, "after backward", model.net, "1", GroupState::kSharded);
    return state;
  };
  const GroupState kept = t.size() == 1 ? GroupState::kFull : GroupState::kSharded;
  t.check(state_after_forward(casts) == kept, "by default");
  t.check(state_after_forward(told) == GroupState::kSharded, "told to release");
  t.check(state_after_forward(offloaded) == GroupState::kSharded, "offloaded");
}

TESSERA_RANK_TEST("fsdp registration: a forward without gradients keeps nothing by default",
                  "[fsdp]") {
  Nested model;
  model.shard({.mesh = t.world().mesh()});
  nn::initialize(model.net, {.seed = 1});
  const NoGradGuard no_grad;
  model.net(Variable(random_rows(2, kDim, DType::kF64, 1)));
  for (const std::string& name : inner_groups())
    check_group(t, "no gradients", model.net, name, GroupState::kSharded);
  check_group(t, "no gradients", model.net, "", GroupState::kSharded);
}

TESSERA_RANK_TEST("fsdp registration: values stay after backward when told to", "[fsdp]") {
  Nested model, reference;
  model.shard({.mesh = t.world().mesh(), .reshard_after_forward = false});
  nn::initialize(model.net, {.seed = 1});
  nn::initialize(reference.net, {.seed = 1});
  const fsdp::Handle root = fsdp::of(model.net);
  const auto step = [&] {
    backward(local_loss(model.net(Variable(random_rows(2, kDim, DType::kF64, 1)))));
  };
  root.set_reshard_after_backward(false);
  step();
  for (const std::string& name : inner_groups())
    check_group(t, "kept", model.net, name, GroupState::kFull);
  check_group(t, "kept", model.net, "", GroupState::kFull);
  root.set_reshard_after_backward(true);
  step();
  for (const std::string& name : inner_groups())
    check_group(t, "released", model.net, name, GroupState::kSharded);
  check_full_values(t, "at the end", model.net, reference.net);
}

TESSERA_RANK_TEST("fsdp registration: phases of a module through an iteration", "[fsdp]") {
  Nested model;
  model.shard({.mesh = t.world().mesh()});
  nn::initialize(model.net, {.seed = 1});
  const fsdp::Handle root = fsdp::of(model.net), first = fsdp::of(model.net.get_submodule("0"));
  std::string seen;
  const auto note = [&] { seen += fmt::format("{} ", fsdp::phase_name(first.phase())); };
  note();
  model.net.get_submodule("0").register_forward_pre_hook(
      [&](nn::Module&, const nn::VisitVariables&) { note(); });
  Variable y = model.net(Variable(random_rows(2, kDim, DType::kF64, 1), true));
  note();
  y.register_hook([&](const Variable&) {
    seen += fmt::format("root {} ", fsdp::phase_name(root.phase()));
    return Variable();
  });
  backward(local_loss(y));
  note();
  const std::string expected = fmt::format(
      "{0} {1} {0} root {2} {0} ", fsdp::phase_name(fsdp::Phase::kIdle),
      fsdp::phase_name(fsdp::Phase::kForward), fsdp::phase_name(fsdp::Phase::kPreBackward));
  t.check(seen == expected, "phases: \"{}\", expected \"{}\"", seen, expected);
}

TESSERA_RANK_TEST("fsdp registration: replicated values are there at all times", "[fsdp]") {
  Nested model;
  for (const char* name : {"0", "1", ""})
    fsdp::replicate(model.net.get_submodule(name), {.mesh = t.world().mesh()});
  nn::initialize(model.net, {.seed = 1});
  Variable y = model.net(Variable(random_rows(2, kDim, DType::kF64, 1)));
  backward(local_loss(y));
  for (const nn::NamedParameter& named : model.net.named_parameters()) {
    const nn::Parameter& parameter = named.parameter;
    t.check(parameter.local().shape() == parameter.spec().global_shape, "{} is {}", named.name,
            parameter.local().shape().str());
    t.check(parameter.grad().defined() && parameter.grad().shape() == parameter.local().shape(),
            "{} has no gradient of its shape", named.name);
  }
  y = model.net(Variable(random_rows(2, kDim, DType::kF64, 1)));
  backward(local_loss(y));
}

}  // namespace
}  // namespace tessera::testing
