#include "tessera/fsdp/runtime/root_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/fsdp/runtime/module_state.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {
namespace {

// The full name of `name` in the module at `path`, where either may be empty.
std::string full_name(const std::string& path, const std::string& name) {
  return path.empty() || name.empty() ? path + name : path + "." + name;
}

}  // namespace

/// The names of the inner modules that gave each setting; empty if none did.
struct RootState::Tellers {
  std::string prefetch, is_last_backward, max_reduces_in_flight;
};

void RootState::take_over_settings(const RootState& inner, const std::string& name,
                                   Tellers& tellers) {
  const auto take_over = [&](const char* setter, bool was_told, auto& mine, const auto& theirs,
                             std::string& teller) {
    if (!was_told) return;
    TESSERA_CHECK_AS(StateError, teller.empty() || mine == theirs, setter,
                     "\"{}\" and \"{}\" were told differently, and now belong to one root: the "
                     "setting is for the whole root_state; call it on the root alone",
                     teller, name);
    mine = theirs;
    teller = name;
  };
  take_over("fsdp.set_prefetch", inner.told.prefetch, prefetch, inner.prefetch, tellers.prefetch);
  take_over("fsdp.set_is_last_backward", inner.told.is_last_backward, is_last_backward,
            inner.is_last_backward, tellers.is_last_backward);
  take_over("fsdp.set_reduce_scatter_max_input_buffers", inner.told.max_reduces_in_flight,
            comm_->max_reduces_in_flight, inner.comm_->max_reduces_in_flight,
            tellers.max_reduces_in_flight);
  told = {.prefetch = told.prefetch || inner.told.prefetch,
          .is_last_backward = told.is_last_backward || inner.told.is_last_backward,
          .max_reduces_in_flight = told.max_reduces_in_flight || inner.told.max_reduces_in_flight};
  // The event covers the writes to the inner module's shards only, so it is waited for in addition.
  if (inner.post_optim_event) comm_->gather().wait(*inner.post_optim_event);
}

void RootState::adopt(ModuleState& root) {
  TESSERA_CHECK_AS(StateError, root.modules().size() == 1, "fsdp.forward",
                   "a group of several modules ({}) cannot be the root: shard the module that "
                   "contains them, and run its forward",
                   root.type_names());
  const std::vector<nn::NamedModule> modules = root.modules().front()->named_modules();
  // Checks all modules first, so that an error leaves every state unchanged.
  Tellers tellers;
  for (const nn::NamedModule& named : modules) {
    const ModuleState* state = ModuleState::of(*named.module);
    if (state == nullptr) continue;
    state->check_between_steps();
    const std::shared_ptr<RootState>& inner = state->shared_root_state();
    if (inner && inner->is_root(*state)) take_over_settings(*inner, named.name, tellers);
  }
  const std::shared_ptr<RootState> self = shared_from_this();
  std::vector<std::pair<ModuleState*, std::string>> names;
  for (const nn::NamedModule& named : modules) {
    ModuleState* state = ModuleState::of(*named.module);
    if (state == nullptr) continue;
    const std::string path = full_name(root.modules().front()->path(), named.name);
    const std::string name = path.empty() ? "root" : path;
    const auto known = std::find_if(names.begin(), names.end(),
                                    [state](const auto& each) { return each.first == state; });
    if (known != names.end()) {
      known->second += ", " + name;
      continue;
    }
    state->join(self, static_cast<int>(states_.size()));
    states_.push_back(state);
    names.emplace_back(state, name);
  }
  for (auto& [state, name] : names) {
    if (state->group()) state->group()->set_name(std::move(name));
  }
}

void RootState::share_comm_of(RootState& first) {
  constexpr const char* kWhere = "fsdp.share_comm_context";
  TESSERA_CHECK_AS(StateError, !used_comm_, kWhere,
                   "{} has run already: share the context before the first forward",
                   states_.empty() ? "a root" : states_.front()->type_names());
  if (told.max_reduces_in_flight) {
    const int mine = comm_->max_reduces_in_flight, theirs = first.comm_->max_reduces_in_flight;
    TESSERA_CHECK_AS(StateError, !first.told.max_reduces_in_flight || mine == theirs, kWhere,
                     "set_reduce_scatter_max_input_buffers() was called with {} for one root and "
                     "with {} for another: the setting is for the streams that they share",
                     theirs, mine);
    first.comm_->max_reduces_in_flight = mine;
    first.told.max_reduces_in_flight = true;
  }
  comm_ = first.comm_;
}

void RootState::check_parameters() {
  if (checked_parameters_) return;
  const nn::Module& root = *states_.front()->modules().front();
  const std::string path = root.path();
  std::string missing;
  bool others_have = false;
  for (nn::NamedParameter& named : root.named_parameters()) {
    const std::string name = full_name(path, named.name);
    named.parameter.set_name(name);
    if (named.parameter.is_materialized()) {
      others_have = true;
    } else {
      missing += (missing.empty() ? "\"" : ", \"") + name + "\"";
    }
  }
  TESSERA_CHECK_AS(StateError, missing.empty(), "fsdp.forward",
                   "parameters without values: {}; call nn::initialize(model{} or load them first",
                   missing,
                   others_have ? ", {.only_missing = true}), which keeps the others," : ")");
  for (const ModuleState* state : states_) {
    if (state && state->group()) state->group()->check_places();
  }
  checked_parameters_ = true;
}

void RootState::forget(ModuleState& state) {
  if (is_root(state)) return dissolve();
  std::replace(states_.begin(), states_.end(), &state, static_cast<ModuleState*>(nullptr));
  std::erase(running_, &state);
  if (forward_root_ == &state) forward_root_ = nullptr;
}

// The root is gone: the modules below it may run as roots of their own.
void RootState::dissolve() {
  for (ModuleState* state : std::exchange(states_, {})) {
    if (state == nullptr || !state->shared_root_state()) continue;
    // Other roots may keep using the streams, so this waits for the group's work in flight.
    if (state->group()) state->group()->finish(*comm_);
    state->leave_root_state();
  }
  running_.clear();
  forward_root_ = nullptr;
}

void RootState::begin_forward(ModuleState& state) {
  check_parameters();
  used_comm_ = true;
  forward_root_ = &state;
  schedule.begin_forward();
  // The optimizer wrote the shards on compute; gathers read them.
  comm_->gather().wait(post_optim_event ? *std::exchange(post_optim_event, {})
                                        : comm_->compute().record("shards written"));
  for (ModuleState* each : states_) {
    if (each && each->group()) each->group()->note_writes_ordered();
  }
}

void RootState::end_forward() {
  const bool backward_follows = std::exchange(forward_root_, nullptr)->backward_follows();
  // The first run of a recomputed root ends like a forward without a backward.
  const bool is_over = !backward_follows || !grad_enabled();
  for (ModuleState* state : states_) {
    if (state == nullptr || !state->group()) continue;
    state->end_root_forward(backward_follows);
    if (is_over) state->group()->end_step(*comm_);
  }
  // Without a backward the iteration ends here, and no gathered memory may remain.
  if (is_over) comm_->unpark_all();
  if (!backward_follows) schedule.forget_forward();
}

void RootState::begin_backward() {
  if (in_backward_pass_) return;
  in_backward_pass_ = true;
  for (ModuleState* state : states_) {
    if (state && state->group()) state->group()->begin_pass();
  }
  queue_callback([weak = weak_from_this()](bool failed) {
    if (const auto root_state = weak.lock()) root_state->end_backward(failed);
  });
}

void RootState::end_backward(bool failed) {
  if (failed) return abandon();
  try {
    finish_backward();
  } catch (...) {
    abandon();
    throw;
  }
}

void RootState::finish_backward() {
  // Backward is done: frees gathered memory before the last reductions allocate theirs. Values
  // gathered ahead of another backward of this iteration stay.
  for (ModuleState* state : states_) {
    if (state == nullptr || !state->group() || !state->settings().reshard_after_backward) continue;
    if (is_last_backward || state->group()->state() == GroupState::kFull) state->close_group();
  }
  if (is_last_backward) comm_->unpark_all();
  for (auto it = states_.rbegin(); it != states_.rend(); ++it) {
    if (*it != nullptr) (*it)->end_backward();
  }
  running_.clear();
  in_backward_pass_ = false;
  if (!is_last_backward) return;
  comm_->finish_all_reduces();
  for (ModuleState* state : states_) {
    if (state == nullptr || !state->group()) continue;
    state->group()->drop_unused_gradients(*comm_);
    state->group()->end_step(*comm_);
  }
  schedule.end_backward();
}

void RootState::abandon() {
  for (ModuleState* state : states_) {
    if (state && state->group()) state->reshard_group();
  }
  comm_->abandon();
  for (ModuleState* state : states_) {
    if (state == nullptr) continue;
    state->reset_pass();
    if (!state->group()) continue;
    state->group()->drop_pending_gradients();
    state->group()->end_step(*comm_);
  }
  running_.clear();
  schedule.end_backward();
  forward_root_ = nullptr;
  in_backward_pass_ = false;
}

bool RootState::runs_around_another(const ModuleState& state) const {
  return !running_.empty() && running_.back() != &state &&
         std::find(running_.begin(), running_.end(), &state) != running_.end();
}

GatherRoom RootState::room() const {
  const auto live = std::count_if(states_.begin(), states_.end(), [this](const ModuleState* state) {
    return state && state->group() && state->group()->occupies_memory() && !state->is_held();
  });
  return {.live = static_cast<int>(live), .depth = std::max(1, prefetch.forward)};
}

void RootState::enter(ModuleState& state) { running_.push_back(&state); }

void RootState::leave(ModuleState& state) { std::erase(running_, &state); }

}  // namespace tessera::fsdp
