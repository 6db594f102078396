#include "tessera/fsdp/runtime/module_state.h"

#include <algorithm>
#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/recompute.h"
#include "tessera/fsdp/runtime/activations.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/trace.h"

namespace tessera::fsdp {

/// A module's reference to its state. Several modules may share a state.
class ModuleState::Link {
 public:
  Link(std::shared_ptr<ModuleState> state, const nn::Module* module)
      : state_(std::move(state)), module_(module) {}
  ~Link() { state_->module_gone(module_); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ModuleState* state() const { return state_.get(); }

 private:
  std::shared_ptr<ModuleState> state_;
  const nn::Module* module_;
};

ModuleState::ModuleState(Parts parts, const FullyShardOptions& options)
    : parts_(std::move(parts)), options_(options) {
  settings_.reshard_after_forward = options.reshard_after_forward;
}

ModuleState::~ModuleState() {
  const std::shared_ptr<RootState> root_state =
      std::move(root_state_);  // forget() may drop the last other
                               // reference
  if (!root_state) return;
  if (group()) group()->finish(root_state->comm());
  root_state->forget(*this);
}

ModuleState* ModuleState::of(const nn::Module& module) {
  const Link* link = module.attached<Link>();
  return link == nullptr ? nullptr : link->state();
}

void ModuleState::module_gone(const nn::Module* module) {
  std::erase(parts_.modules, module);
  std::erase(parts_.managed, module);
}

void ModuleState::install() {
  const std::weak_ptr<ModuleState> weak = weak_from_this();
  for (nn::Module* module : parts_.modules) {
    module->attach(std::make_shared<Link>(shared_from_this(), module));
    module->register_forward_pre_hook(
        [weak](nn::Module& self, const nn::VisitVariables& arguments) {
          if (const auto state = weak.lock()) state->pre_forward(self, arguments);
        },
        {.first = true});
    module->register_forward_hook(
        [weak](nn::Module& self, const nn::VisitVariables* results) {
          if (const auto state = weak.lock()) state->post_forward(self, results);
        },
        {.always = true});
  }
  if (!group()) return;
  group()->on_gradient([weak] {
    const auto state = weak.lock();
    if (state && in_backward()) state->root_state().begin_backward();
  });
  group()->on_conversion([weak] {
    if (const auto state = weak.lock()) state->check_convertible();
  });
  group()->set_idle_query([weak] {
    const auto state = weak.lock();
    return !state || !state->shared_root_state() || state->shared_root_state()->is_idle();
  });
}

void ModuleState::check_convertible() {
  if (!root_state_) return;
  TESSERA_CHECK_AS(StateError, root_state_->is_idle(), "fsdp.to",
                   "{} is in the middle of a step: convert it between steps", type_names());
  reshard_by_hand();
  group()->wait_for_readers(root_state_->comm());  // the conversion frees the shards' memory
  root_state_->note_conversion();
}

std::string ModuleState::type_names() const {
  std::string names;
  for (const nn::Module* module : parts_.modules)
    names += (names.empty() ? "" : ", ") + module->type_name();
  return names;
}

RootState& ModuleState::root_state() {
  if (!root_state_) {
    std::make_shared<RootState>(std::make_shared<CommContext>(device()))->adopt(*this);
  }
  return *root_state_;
}

void ModuleState::check_between_steps() const {
  TESSERA_CHECK_AS(
      StateError, !root_state_ || root_state_->is_idle(), "fsdp.forward",
      "{} is in the middle of a step as part of another root: finish or abandon that step first",
      type_names());
}

void ModuleState::join(std::shared_ptr<RootState> root_state, int index) {
  if (root_state_ && root_state_ != root_state) {
    if (group()) group()->reshard(root_state_->comm());
    const std::shared_ptr<RootState> old = std::exchange(root_state_, nullptr);
    old->forget(*this);
  }
  root_state_ = std::move(root_state);
  index_ = index;
}

void ModuleState::leave_root_state() {
  opened_by_hand_ = gathered_beyond_depth_ = false;
  root_state_.reset();
}

bool ModuleState::is_told_to_stay() const {
  if (kind() == Kind::kReplicate) return true;
  const ReshardAfterForward& reshard = settings_.reshard_after_forward;
  if (reshard.ranks()) return *reshard.ranks() == 1;
  if (reshard.reshard()) return !*reshard.reshard();
  return (root_state_ && root_state_->is_root(*this)) || (group() && group()->gathers_alone());
}

bool ModuleState::is_held() const {
  return is_told_to_stay() || opened_by_hand_ || gathered_beyond_depth_ ||
         !settings_.reshard_after_backward ||
         (root_state_ && root_state_->runs_around_another(*this));
}

void ModuleState::reshard_after_forward() {
  // By default the root's values stay because backward needs them first, and those of a group of one
  // rank because a second gather would only cast them again. Without a backward there is no reason to
  // keep them.
  const bool stays =
      is_told_to_stay() && (settings_.reshard_after_forward.is_set() || backward_follows_);
  if (stays) return;
  const bool keeps_part = settings_.reshard_after_forward.ranks() && backward_follows_;
  if (!keeps_part) return close_group();
  group()->reshard_to_part(root_state_->comm());
  opened_by_hand_ = gathered_beyond_depth_ = false;
}

// Whether a backward will pass through this call: it starts at a result that requires a gradient.
// If the hooks see no Variable among the results, the module may keep its loss elsewhere, so the
// group's own parameters decide. In the first run of a recomputed forward no result requires a
// gradient yet.
bool ModuleState::expects_backward(const nn::VisitVariables& results) const {
  if (in_recomputed_forward()) return true;
  if (!grad_enabled()) return false;
  bool any = false;
  bool needs_gradient = false;
  results([&](const Variable& result) {
    any = true;
    needs_gradient |= result.requires_grad();
  });
  return any ? needs_gradient : group() != nullptr && group()->is_trained();
}

// The modules of a group run one after another. Returns true if this one was the last.
bool ModuleState::note_ran(const nn::Module& module) {
  if (std::find(ran_.begin(), ran_.end(), &module) == ran_.end()) ran_.push_back(&module);
  if (ran_.size() < parts_.modules.size()) return false;
  ran_.clear();
  return true;
}

void ModuleState::prepare_arguments(nn::Module& module, const nn::VisitVariables& arguments) {
  const MixedPrecision& precision = options_.mixed_precision;
  if (!precision.param_dtype || !precision.cast_forward_inputs) return;
  if (precision.exempt && precision.exempt(module)) return;
  cast_variables(arguments, *precision.param_dtype);
}

void ModuleState::pre_forward(nn::Module& module, const nn::VisitVariables& arguments) {
  RootState& root_state = this->root_state();
  if (in_backward()) {  // recomputation: the enclosing backward decides what is released and
                        // recorded
    prepare_arguments(module, arguments);
    root_state.begin_backward();
    if (!group()) return;
    group()->wait_for_unshard(root_state.comm(), root_state.room());
    if (ran_.empty()) watch_arguments(arguments);
    return;
  }
  if (depth_++ > 0) {  // a hooked method that calls its own module: the outer call decides
    prepare_arguments(module, arguments);
    if (group()) group()->wait_for_unshard(root_state.comm(), root_state.room());
    return;
  }
  if (root_state.forward_root() == nullptr) {
    root_state.begin_forward(*this);
    move_variables(arguments, device());
  }
  phase_ = Phase::kForward;
  if (ran_.empty()) backward_follows_ = false;
  prepare_arguments(module, arguments);
  if (!group()) return;
  if (ran_.empty()) {
    enter_forward(arguments);
  } else {
    group()->wait_for_unshard(root_state.comm(), root_state.room());
  }
}

void ModuleState::enter_forward(const nn::VisitVariables& arguments) {
  RootState& root_state = *root_state_;
  root_state.enter(*this);
  group()->wait_for_unshard(root_state.comm(), root_state.room());
  watch_arguments(arguments);
  prefetch(settings_.forward_prefetch,
           root_state.schedule.enter_forward(index_, root_state.prefetch.forward));
}

void ModuleState::post_forward(nn::Module& module, const nn::VisitVariables* results) {
  if (!root_state_) return;
  const bool is_inner = !in_backward() && depth_ > 0 && --depth_ > 0;
  if (results == nullptr) {
    if (!in_backward() && !is_inner) forward_failed();
    return;
  }
  if (!in_backward()) backward_follows_ |= expects_backward(*results);
  // Recomputation keeps the values, also in the first run of a recomputation inside another one;
  // the post-backward of the second run releases them.
  const bool all_ran = !is_inner && (group() == nullptr || note_ran(module));
  if (!in_backward() && all_ran) {
    if (group()) {
      leave_forward();
    } else {
      phase_ = Phase::kIdle;
    }
  }
  if (grad_enabled()) watch_results(*results);
  if (options_.mixed_precision.output_dtype)
    cast_variables(*results, *options_.mixed_precision.output_dtype);
  if (!in_backward() && !is_inner && root_state_->forward_root() == this)
    root_state_->end_forward();
}

void ModuleState::leave_forward() {
  root_state_->leave(*this);
  reshard_after_forward();
  if (backward_follows_) root_state_->schedule.leave_forward(index_);
  phase_ = Phase::kIdle;
}

// Forward threw. An outer module may catch the error and continue.
void ModuleState::forward_failed() {
  ran_.clear();
  root_state_->leave(*this);
  if (group()) reshard_group();
  phase_ = Phase::kIdle;
  if (root_state_->forward_root() == this) root_state_->abandon();
}

void ModuleState::end_root_forward(bool root_backward_follows) {
  if (!group()) return;
  // Some modules of a group of several did not run: it stays gathered.
  if (!ran_.empty()) {
    ran_.clear();
    root_state_->leave(*this);
    if (grad_enabled() && backward_follows_) {
      gathered_beyond_depth_ = true;
      root_state_->schedule.leave_forward(index_);
    } else {
      reshard_after_forward();
    }
  }
  if (group()->state() == GroupState::kGathering && !opened_by_hand_) close_group();
  // A recomputed module kept 1/n for a backward that will not come.
  if (grad_enabled() && !root_backward_follows && group()->state() == GroupState::kPostForward)
    reshard_group();
}

// If no argument is watched, the end of the backward pass replaces the post-backward hook.
void ModuleState::watch_arguments(const nn::VisitVariables& arguments) {
  if (!grad_enabled()) return;
  after_gradients(arguments, [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->post_backward();
  });
}

void ModuleState::watch_results(const nn::VisitVariables& results) {
  before_gradients(results, [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->pre_backward();
  });
}

void ModuleState::prefetch(
    const std::optional<std::vector<std::weak_ptr<ModuleState>>>& explicit_list,
    const std::vector<int>& implicit) {
  if (!explicit_list) {
    for (const int index : implicit) {
      ModuleState* next = root_state_->states()[static_cast<std::size_t>(index)];
      if (next) next->unshard_ahead(/*held=*/false);
    }
    return;
  }
  int ahead = 0;
  for (const std::weak_ptr<ModuleState>& weak : *explicit_list) {
    if (const auto next = weak.lock()) next->unshard_ahead(ahead++ >= root_state_->room().depth);
  }
}

void ModuleState::unshard_ahead(bool held) {
  if (!group()) return;
  RootState& root_state = this->root_state();
  const GroupState before = group()->state();
  if (before != GroupState::kSharded && before != GroupState::kPostForward) return;
  gathered_beyond_depth_ = held;
  group()->unshard(root_state.comm(), root_state.room());
}

void ModuleState::pre_backward() {
  if (phase_ == Phase::kPreBackward || !root_state_) return;
  phase_ = Phase::kPreBackward;
  root_state_->begin_backward();
  if (!group()) return;
  group()->check_not_stale();
  root_state_->enter(*this);
  if (settings_.unshard_in_backward)
    group()->wait_for_unshard(root_state_->comm(), root_state_->room());
  std::vector<int> implicit;
  const std::optional<int> preceding = root_state_->schedule.enter_backward(index_);
  if (preceding && root_state_->prefetch.backward == BackwardPrefetch::kPre) {
    const ModuleState* next = root_state_->states()[static_cast<std::size_t>(*preceding)];
    if (next && next->settings_.unshard_in_backward) implicit.push_back(*preceding);
  }
  prefetch(settings_.backward_prefetch, implicit);
}

void ModuleState::post_backward() {
  phase_ = Phase::kPostBackward;
  if (!group() || !root_state_) return;
  root_state_->leave(*this);
  const bool keeps_gather =
      group()->state() == GroupState::kGathering && !root_state_->is_last_backward;
  if (settings_.reshard_after_backward && !keeps_gather) close_group();
  if (settings_.reduce_gradients && group()->ready_to_reduce() && !group()->needs_zeros())
    group()->reduce(root_state_->comm());
  annotate(kAnnotationDomain, group()->group_name(), kPostBackwardPhase);
}

// Parameters that were also used outside their module got gradients after its post-backward. Groups
// in which every rank takes part, perhaps with zeros, are reduced here, in the same order everywhere.
void ModuleState::end_backward() {
  if (phase_ != Phase::kPostBackward) post_backward();
  if (group() && settings_.reduce_gradients) group()->reduce(root_state_->comm());
  phase_ = Phase::kIdle;
  ran_.clear();
}

void ModuleState::reset_pass() {
  ran_.clear();
  depth_ = 0;
  phase_ = Phase::kIdle;
}

void ModuleState::reshard_group() {
  const bool held = is_held();
  group()->reshard(root_state_->comm());
  note_released(held);
}

void ModuleState::close_group() {
  if (settings_.reshard_after_forward.reshard() == true) return reshard_group();
  const bool held = is_held();
  group()->close(root_state_->comm());
  note_released(held);
}

void ModuleState::note_released(bool held) {
  opened_by_hand_ = gathered_beyond_depth_ = false;
  // No gather reuses the memory of a held group, so none would wait for its release.
  if (held) root_state_->comm().unpark_all();
}

void ModuleState::unshard_by_hand(bool wait) {
  if (!group()) return;
  RootState& root_state = this->root_state();
  opened_by_hand_ = true;
  if (wait) {
    group()->wait_for_unshard(root_state.comm(), root_state.room());
  } else {
    group()->unshard(root_state.comm(), root_state.room());
  }
}

void ModuleState::wait_by_hand() {
  // If it was released meanwhile, by hand or because it was unused, there is nothing to wait for.
  if (group() && root_state_ && group()->state() == GroupState::kGathering)
    group()->wait_for_unshard(root_state_->comm(), root_state_->room());
}

void ModuleState::reshard_by_hand() {
  if (!group() || !root_state_) return;
  reshard_group();
  if (root_state_->is_idle()) root_state_->comm().unpark_all();
}

}  // namespace tessera::fsdp
