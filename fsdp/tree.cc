#include <algorithm>
#include <string>
#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/fsdp/runtime.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {

void Tree::adopt(ModuleState& root) {
  const std::shared_ptr<Tree> self = shared_from_this();
  for (const nn::NamedModule& named : root.module().named_modules()) {
    ModuleState* state = named.module->attached<ModuleState>();
    if (state == nullptr) continue;
    state->join(self, static_cast<int>(states_.size()));
    states_.push_back(state);
    if (state->group()) state->group()->set_name(named.name.empty() ? "root" : named.name);
  }
}

void Tree::check_materialized(nn::Module& root) {
  if (checked_materialized_) return;
  std::string missing;
  for (nn::NamedParameter& named : root.named_parameters()) {
    named.parameter.set_name(named.name);
    if (!named.parameter.is_materialized())
      missing += (missing.empty() ? "\"" : ", \"") + named.name + "\"";
  }
  TESSERA_CHECK_AS(StateError, missing.empty(), "fsdp.forward",
                   "parameters without values: {}; call nn::initialize(model) or load them first",
                   missing);
  checked_materialized_ = true;
}

void Tree::forget(ModuleState& state) {
  if (is_root(state)) return dissolve();
  std::replace(states_.begin(), states_.end(), &state, static_cast<ModuleState*>(nullptr));
  std::erase(running_, &state);
  if (forward_root_ == &state) forward_root_ = nullptr;
}

// The root is gone: what is left below it may run as roots of their own.
void Tree::dissolve() {
  for (ModuleState* state : std::exchange(states_, {})) {
    if (state == nullptr || !state->shared_tree()) continue;
    if (state->group()) state->reshard_group();
    state->leave_tree();
  }
  running_.clear();
  forward_root_ = nullptr;
}

void Tree::begin_forward(ModuleState& state) {
  check_materialized(states_.front()->module());
  forward_root_ = &state;
  schedule.begin_forward();
  // The optimizer wrote the shards on compute; gathers read them.
  comm.gather().wait(comm.compute().record("shards written"));
  for (ModuleState* each : states_) {
    if (each && each->group()) each->group()->note_writes_ordered();
  }
}

void Tree::end_forward() {
  forward_root_ = nullptr;
  for (ModuleState* state : states_) {
    if (state && state->group() && state->group()->state() == GroupState::kGathering)
      state->reshard_group();
  }
  // Without a backward this is the end of the iteration, and nothing gathered may remain.
  if (!grad_enabled()) comm.unpark_all();
}

void Tree::begin_backward() {
  if (in_backward_pass_) return;
  in_backward_pass_ = true;
  for (ModuleState* state : states_) {
    if (state && state->group()) state->group()->begin_pass();
  }
  queue_callback([weak = weak_from_this()](bool failed) {
    if (const auto tree = weak.lock()) tree->end_backward(failed);
  });
}

void Tree::end_backward(bool failed) {
  if (failed) return abandon();
  try {
    finish_backward();
  } catch (...) {
    abandon();
    throw;
  }
}

void Tree::finish_backward() {
  // Nothing is computed any more: gathered memory goes back before the last reduces take theirs.
  for (ModuleState* state : states_) {
    if (state && state->group()) state->reshard_group();
  }
  comm.unpark_all();
  for (auto it = states_.rbegin(); it != states_.rend(); ++it) {
    ModuleState* state = *it;
    if (state == nullptr) continue;
    if (state->phase_ != ModuleState::Phase::kPostBackward) state->post_backward();
    // Gradients of parameters that were also used outside their module came after its
    // post-backward.
    if (state->group()) state->group()->reduce(comm);
    state->phase_ = ModuleState::Phase::kIdle;
  }
  comm.finish_reduces(0);
  running_.clear();
  schedule.end_backward();
  in_backward_pass_ = false;
}

void Tree::abandon() {
  for (ModuleState* state : states_) {
    if (state == nullptr) continue;
    if (state->group()) {
      state->reshard_group();
      state->group()->discard_pending_gradients();
    }
    state->phase_ = ModuleState::Phase::kIdle;
  }
  comm.abandon();
  running_.clear();
  schedule.end_backward();
  forward_root_ = nullptr;
  in_backward_pass_ = false;
}

bool Tree::is_held(const ModuleState& state) const {
  if (state.is_told_to_stay() || state.is_opened_by_hand()) return true;
  // Ancestors of the innermost running module keep their values while it runs.
  return !running_.empty() && running_.back() != &state &&
         std::find(running_.begin(), running_.end(), &state) != running_.end();
}

int Tree::live_buffers() const {
  return static_cast<int>(
      std::count_if(states_.begin(), states_.end(), [this](const ModuleState* state) {
        return state && state->group() && state->group()->occupies_memory() && !is_held(*state);
      }));
}

void Tree::enter(ModuleState& state) { running_.push_back(&state); }

void Tree::leave(ModuleState& state) { std::erase(running_, &state); }

void Tree::prefetch(std::optional<int> index) {
  if (!index) return;
  ModuleState* state = states_[static_cast<std::size_t>(*index)];
  if (state && state->group()) state->group()->unshard(comm, live_buffers());
}

}  // namespace tessera::fsdp
