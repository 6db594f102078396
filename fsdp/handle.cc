#include "tessera/fsdp/handle.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "tessera/fsdp/runtime/module_state.h"
#include "tessera/fsdp/runtime/param_group.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {
namespace {

std::vector<ModuleState*> states_below(const std::vector<nn::Module*>& modules) {
  std::vector<ModuleState*> out;
  for (nn::Module* module : modules) {
    for (const nn::NamedModule& named : module->named_modules()) {
      ModuleState* state = ModuleState::of(*named.module);
      if (state && std::find(out.begin(), out.end(), state) == out.end()) out.push_back(state);
    }
  }
  return out;
}

std::vector<ModuleState*> reached(ModuleState& state, const RecurseOptions& options) {
  if (!options.recurse) return {&state};
  return states_below(state.modules());
}

// Throws if there are states with a group and `acts` is false for all of them.
template <class Acts>
void check_acts(const std::vector<ModuleState*>& states, const Acts& acts, const char* where,
                const char* why) {
  const auto has_group = [](const ModuleState* s) { return s->group() != nullptr; };
  if (std::none_of(states.begin(), states.end(), has_group)) return;
  const bool any = std::any_of(states.begin(), states.end(),
                               [&](ModuleState* s) { return has_group(s) && acts(*s); });
  TESSERA_CHECK(any, where, "it can never act on {}: {}", states.front()->type_names(), why);
}

bool is_sharded(const ModuleState& state) { return state.kind() == Kind::kFullyShard; }

std::vector<std::weak_ptr<ModuleState>> weak_states(const std::vector<nn::Module*>& modules,
                                                    const char* where) {
  std::vector<std::weak_ptr<ModuleState>> out;
  for (const nn::Module* module : modules) {
    TESSERA_CHECK(module != nullptr, where, "a module of the list is null");
    ModuleState* state = ModuleState::of(*module);
    TESSERA_CHECK(state != nullptr, where, "{} is not sharded: call fully_shard on it first",
                  module->type_name());
    out.push_back(state->weak_from_this());
  }
  return out;
}

std::optional<std::vector<nn::Module*>> modules_of(
    const std::optional<std::vector<std::weak_ptr<ModuleState>>>& states) {
  if (!states) return std::nullopt;
  std::vector<nn::Module*> out;
  for (const std::weak_ptr<ModuleState>& weak : *states) {
    const auto state = weak.lock();
    if (state && !state->modules().empty()) out.push_back(state->modules().front());
  }
  return out;
}

}  // namespace

const char* kind_name(Kind kind) { return kind == Kind::kReplicate ? "replicate" : "fully_shard"; }

const char* group_state_name(GroupState state) {
  switch (state) {
    case GroupState::kSharded:
      return "sharded";
    case GroupState::kPostForward:
      return "post_forward";
    case GroupState::kGathering:
      return "gathering";
    case GroupState::kFull:
      return "full";
  }
  return "?";
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "idle";
    case Phase::kForward:
      return "forward";
    case Phase::kPreBackward:
      return "pre_backward";
    case Phase::kPostBackward:
      return "post_backward";
  }
  return "?";
}

void UnshardHandle::wait() {
  if (const auto state = std::exchange(state_, {}).lock()) state->wait_by_hand();
}

UnshardHandle Handle::unshard(const UnshardOptions& options) const {
  state_->unshard_by_hand(/*wait=*/!options.async);
  return options.async ? UnshardHandle(state_->weak_from_this()) : UnshardHandle();
}

void Handle::reshard() const { state_->reshard_by_hand(); }

void Handle::set_requires_gradient_sync(bool value, const RecurseOptions& options) const {
  for (ModuleState* state : reached(*state_, options)) {
    state->settings().reduce_gradients = value;
    if (state->group()) state->group()->settings().all_reduce = value;
  }
}

void Handle::set_requires_all_reduce(bool value, const RecurseOptions& options) const {
  const auto has_both = [](const ModuleState& s) {
    return s.group() && s.group()->has_shards() && s.group()->has_replicas();
  };
  const auto states = reached(*state_, options);
  check_acts(states, has_both, "fsdp.set_requires_all_reduce",
             "no group has replicas beside shards (a mesh of 2 axes)");
  for (ModuleState* state : states) {
    if (has_both(*state)) state->group()->settings().all_reduce = value;
  }
}

void Handle::set_is_last_backward(bool value) const {
  RootState& root_state = state_->root_state();
  root_state.is_last_backward = value;
  root_state.told.is_last_backward = true;
}

void Handle::set_reshard_after_forward(bool value, const RecurseOptions& options) const {
  const auto states = reached(*state_, options);
  check_acts(states, is_sharded, "fsdp.set_reshard_after_forward",
             "replicated values are never released");
  for (ModuleState* state : states) state->settings().reshard_after_forward = value;
}

void Handle::set_reshard_after_backward(bool value, const RecurseOptions& options) const {
  for (ModuleState* state : reached(*state_, options))
    state->settings().reshard_after_backward = value;
}

void Handle::set_unshard_in_backward(bool value) const {
  check_acts({state_}, is_sharded, "fsdp.set_unshard_in_backward",
             "replicated values are not gathered");
  state_->settings().unshard_in_backward = value;
}

void Handle::set_prefetch(const PrefetchOptions& options) const {
  TESSERA_CHECK(options.forward >= 0, "fsdp.set_prefetch",
                "forward = {}: expected at least 0 groups ahead", options.forward);
  RootState& root_state = state_->root_state();
  root_state.prefetch = options;
  root_state.told.prefetch = true;
}

void Handle::set_modules_to_forward_prefetch(const std::vector<nn::Module*>& modules) const {
  state_->settings().forward_prefetch =
      weak_states(modules, "fsdp.set_modules_to_forward_prefetch");
}

void Handle::set_modules_to_backward_prefetch(const std::vector<nn::Module*>& modules) const {
  state_->settings().backward_prefetch =
      weak_states(modules, "fsdp.set_modules_to_backward_prefetch");
}

void Handle::set_post_optim_event(const DeviceEvent& event) const {
  constexpr const char* kWhere = "fsdp.set_post_optim_event";
  RootState& root_state = state_->root_state();
  TESSERA_CHECK(root_state.is_root(*state_), kWhere, "{} is not the root: set the event there",
                state_->type_names());
  TESSERA_CHECK(event.is_recorded(), kWhere, "the event was never recorded");
  root_state.post_optim_event = event;
}

void Handle::set_reduce_scatter_max_input_buffers(int count) const {
  TESSERA_CHECK(count >= 0, "fsdp.set_reduce_scatter_max_input_buffers",
                "expected at least 0, got {}", count);
  RootState& root_state = state_->root_state();
  root_state.comm().max_reduces_in_flight = count;
  root_state.told.max_reduces_in_flight = true;
}

void Handle::set_separate_reduce_scatter_group(bool value, const RecurseOptions& options) const {
  const auto states = reached(*state_, options);
  check_acts(states, is_sharded, "fsdp.set_separate_reduce_scatter_group",
             "replicated gradients are not reduce-scattered");
  // One new group for each set of ranks: parameter groups over the same ranks share it.
  std::vector<std::pair<std::shared_ptr<distributed::ProcessGroup>,
                        std::shared_ptr<distributed::ProcessGroup>>>
      made;
  for (ModuleState* state : states) {
    if (!state->group() || !state->group()->has_shards()) continue;
    auto& own = state->group()->settings().reduce_group;
    own.reset();
    if (!value) continue;
    const auto& shared = state->group()->shard_group();
    const auto known = std::find_if(made.begin(), made.end(),
                                    [&](const auto& each) { return each.first == shared; });
    if (known != made.end()) {
      own = known->second;
      continue;
    }
    std::vector<int> all(static_cast<std::size_t>(shared->size()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    own = shared->subgroup(all, shared->name() + ".reduce_scatter");
    made.emplace_back(shared, own);
  }
}

void Handle::set_gradient_divide_factor(double factor, const RecurseOptions& options) const {
  TESSERA_CHECK(std::isfinite(factor) && factor > 0, "fsdp.set_gradient_divide_factor",
                "expected a finite factor above 0, got {}", factor);
  for (ModuleState* state : reached(*state_, options)) {
    if (state->group()) state->group()->settings().divide_factor = factor;
  }
}

void Handle::set_all_reduce_hook(AllReduceHook hook, std::optional<DeviceStream> stream) const {
  if (!state_->group()) return;
  TESSERA_CHECK(!stream || !state_->group()->has_replicas(), "fsdp.set_all_reduce_hook",
                "{} has native replicas: its hook runs on the stream of their all-reduce, and a "
                "stream cannot be set",
                state_->type_names());
  state_->group()->settings().all_reduce_hook = std::move(hook);
  state_->group()->settings().hook_stream = std::move(stream);
}

void Handle::set_custom_all_gather(CustomCollective function) const {
  check_acts({state_}, is_sharded, "fsdp.set_custom_all_gather",
             "replicated values are not gathered");
  if (state_->group()) state_->group()->settings().all_gather = std::move(function);
}

void Handle::set_custom_reduce_scatter(CustomCollective function) const {
  check_acts({state_}, is_sharded, "fsdp.set_custom_reduce_scatter",
             "replicated gradients are not reduce-scattered");
  if (state_->group()) state_->group()->settings().reduce_scatter = std::move(function);
}

void Handle::set_reduce_scatter_unused_params(bool value, const RecurseOptions& options) const {
  for (ModuleState* state : reached(*state_, options)) {
    if (state->group()) state->group()->settings().zeros_for_unused = value;
  }
}

void Handle::discard_pending_gradients() const {
  for (ModuleState* state : reached(*state_, {})) {
    // Without a tree nothing has run, and no gradient is pending.
    if (state->group() && state->shared_root_state())
      state->group()->discard_pending_gradients(state->shared_root_state()->comm());
  }
}

void Handle::reset_iter_state() const {
  RootState& root_state = state_->root_state();
  TESSERA_CHECK_AS(StateError, root_state.is_root(*state_), "fsdp.reset_iter_state",
                   "{} is not the root: reset the root", state_->type_names());
  root_state.abandon();
}

Kind Handle::kind() const { return state_->kind(); }
const FullyShardOptions& Handle::options() const { return state_->options(); }
Phase Handle::phase() const { return state_->phase(); }
bool Handle::has_group() const { return state_->group() != nullptr; }

GroupState Handle::state() const {
  return state_->group() ? state_->group()->state() : GroupState::kSharded;
}

bool Handle::is_root() const {
  return state_->shared_root_state() && state_->shared_root_state()->is_root(*state_);
}

std::string Handle::group_name() const {
  return state_->group() ? state_->group()->group_name() : state_->type_names();
}

std::vector<std::string> Handle::parameter_names() const {
  std::vector<std::string> names;
  if (!state_->group()) return names;
  for (const ShardedParameter& parameter : state_->group()->parameters())
    names.push_back(parameter.parameter().name());
  return names;
}

std::vector<nn::Module*> Handle::managed_modules() const { return state_->managed(); }

GroupPlacements Handle::placements() const {
  using distributed::Placements;
  using distributed::Replicate;
  using distributed::Shard;
  if (!state_->group()) return {};
  if (kind() == Kind::kReplicate) {
    const Placements whole = {Replicate{}};
    return {.parameter = whole, .kept = whole, .gradient = whole, .optimizer = whole};
  }
  const int dim = state_->group()->parameters().front().layout().dim();
  const bool hybrid = options().mesh.ndim() == 2;
  const bool over_replicas = options().shard_optimizer_over_replicas;
  Placements rows = {Shard{.dim = dim}};
  Placements whole = {Replicate{}};
  if (hybrid) {
    rows.insert(rows.begin(), Replicate{});
    whole.insert(whole.begin(), Replicate{});
  }
  Placements finest = rows;
  if (over_replicas) finest.front() = Shard{.dim = dim, .turn = 1};
  return {.parameter = finest,
          .kept = state_->keeps_after_forward() ? whole : rows,
          .gradient = finest,
          .optimizer = finest};
}

bool Handle::requires_gradient_sync() const { return state_->settings().reduce_gradients; }

bool Handle::requires_all_reduce() const {
  return state_->group() == nullptr || state_->group()->settings().all_reduce;
}

ReshardAfterForward Handle::reshard_after_forward() const {
  return state_->settings().reshard_after_forward;
}

bool Handle::unshard_in_backward() const { return state_->settings().unshard_in_backward; }

double Handle::gradient_divide_factor() const {
  if (!state_->group()) return 1;
  const auto ranks = static_cast<double>(state_->group()->data_parallel_size());
  return state_->group()->settings().divide_factor.value_or(ranks);
}

bool Handle::reduce_scatter_unused_params() const {
  return state_->group() && state_->group()->settings().zeros_for_unused;
}

bool Handle::reshard_after_backward() const { return state_->settings().reshard_after_backward; }

// A query must not create a tree, because that would make this module a root.
PrefetchOptions Handle::prefetch() const {
  return state_->shared_root_state() ? state_->shared_root_state()->prefetch : PrefetchOptions{};
}

std::optional<std::vector<nn::Module*>> Handle::modules_to_forward_prefetch() const {
  return modules_of(state_->settings().forward_prefetch);
}

std::optional<std::vector<nn::Module*>> Handle::modules_to_backward_prefetch() const {
  return modules_of(state_->settings().backward_prefetch);
}

std::int64_t Handle::slot_bytes() const {
  std::int64_t bytes = 0;
  if (!state_->group()) return bytes;
  for (const ShardedParameter& each : state_->group()->parameters()) {
    if (!each.parameter().requires_grad()) continue;
    bytes +=
        each.slot().padded().numel() * static_cast<std::int64_t>(dtype_size(each.slot().dtype()));
  }
  return bytes;
}

std::int64_t Handle::gathered_bytes() const {
  return state_->group() ? state_->group()->gathered_bytes() : 0;
}

CopyCounters Handle::copies() const {
  if (!state_->shared_root_state()) return {};
  RootState& root_state = *state_->shared_root_state();
  CopyCounters copies = root_state.comm().copies;
  for (const ModuleState* state : root_state.states()) {
    if (state && state->group()) copies.accumulated += state->group()->accumulated_bytes();
  }
  return copies;
}

Handle of(const nn::Module& module) {
  ModuleState* state = ModuleState::of(module);
  TESSERA_CHECK_AS(StateError, state != nullptr, "fsdp.of",
                   "no FSDP state on {}: call fully_shard on it first", module.type_name());
  return Handle(*state);
}

bool has_state(const nn::Module& module) { return ModuleState::of(module) != nullptr; }

std::vector<nn::Module*> sharded_modules(nn::Module& model, const ShardedModulesOptions& options) {
  std::vector<nn::Module*> out;
  std::unordered_set<const nn::Module*> inside;
  for (const nn::NamedModule& named : model.named_modules()) {
    if (!has_state(*named.module) || inside.count(named.module) != 0) continue;
    out.push_back(named.module);
    if (!options.root_only) continue;
    for (const nn::NamedModule& below : named.module->named_modules()) inside.insert(below.module);
  }
  return out;
}

void share_comm_context(const std::vector<nn::Module*>& roots) {
  RootState* first = nullptr;
  for (const nn::Module* root : roots) {
    ModuleState* state = root ? ModuleState::of(*root) : nullptr;
    TESSERA_CHECK(state != nullptr, "fsdp.share_comm_context",
                  "{} has no FSDP state: shard the roots first",
                  root ? root->type_name() : std::string("a null module"));
    RootState& root_state = state->root_state();
    if (first == nullptr) first = &root_state;
    root_state.share_comm_of(*first);
  }
}

}  // namespace tessera::fsdp
