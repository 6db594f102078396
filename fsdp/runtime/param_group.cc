#include "tessera/fsdp/runtime/param_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/thread_state.h"
#include "tessera/tensor/trace.h"

namespace tessera::fsdp {

ParamGroup::ParamGroup(const GroupRequest& request, const FullyShardOptions& options)
    : name_(request.name),
      layout_(request, options),
      kept_(layout_, options.reshard_after_forward, name_),
      gather_(layout_, settings_, name_) {}

std::shared_ptr<ParamGroup> ParamGroup::create(GroupRequest request,
                                               const FullyShardOptions& options) {
  std::shared_ptr<ParamGroup> group(new ParamGroup(request, options));
  group->layout_.add_parameters(std::move(request.parameters), options, group->name_);
  // Nothing was changed up to here, so an error leaves the model as it was.
  group->layout_.take_over(group);
  group->lay_out();
  return group;
}

ParamGroup::~ParamGroup() {
  try {
    gather_.retire("the module of group " + name_ +
                   ", which gathers it, is gone: keep the model until backward has run");
  } catch (const std::exception&) {
    // Out of host memory for the text: the storage is then released without it.
  }
}

void ParamGroup::lay_out() {
  gather_.set_storage(layout_.place_parameters(name_));
  for (ShardedParameter& parameter : layout_.parameters) parameter.slot().set_listener(listener_);
}

// ---- questions and checks ----------------------------------------------------------------------

bool ParamGroup::has_pending_gradients() const { return layout_.has_pending_gradients(); }

std::int64_t ParamGroup::accumulated_bytes() const {
  std::int64_t bytes = 0;
  for (const ShardedParameter& parameter : layout_.parameters)
    bytes += parameter.slot().accumulated_bytes();
  return bytes;
}

void ParamGroup::check_not_shown_whole() const {
  TESSERA_CHECK_AS(StateError, shown_whole_ == 0, "fsdp.FullParameters",
                   "group {} runs while a FullParameters guard holds its parameters: close the "
                   "guard first",
                   name_);
}

void ParamGroup::check_not_stale() const {
  for (const ShardedParameter& parameter : layout_.parameters) {
    TESSERA_CHECK_AS(StateError, !parameter.is_written_since_shown(), "fsdp.backward",
                     "parameter \"{}\" of group {} was written between forward and backward: its "
                     "gradient would belong to neither value; write parameters after backward",
                     parameter.parameter().name(), name_);
  }
}

void ParamGroup::check_places() const {
  for (const ShardedParameter& parameter : layout_.parameters) {
    const Device wanted = parameter.choice().offload ? kCpu : layout_.mesh.device();
    const Device found = parameter.parameter().local().device();
    TESSERA_CHECK_AS(
        StateError, found == wanted, "fsdp.forward",
        "parameter \"{}\" of group {} lies on {}; its shards live on {}: initialise or "
        "move it there",
        parameter.parameter().name(), name_, found.str(), wanted.str());
  }
}

void ParamGroup::prepare_conversion() {
  TESSERA_CHECK_AS(StateError, !has_pending_gradients(), "fsdp.to",
                   "gradients of group {} wait to be reduced: convert the model between steps, or "
                   "discard_pending_gradients()",
                   name_);
  if (before_conversion_) before_conversion_();
  for (ShardedParameter& parameter : layout_.parameters) parameter.note_conversion();
}

// ---- gather and release ------------------------------------------------------------------------

void ParamGroup::note_writes_ordered() {
  for (ShardedParameter& parameter : layout_.parameters) parameter.has_new_writes();
}

void ParamGroup::unshard(CommContext& comm, const GatherRoom& room) {
  check_not_shown_whole();
  if (state_ != GroupState::kSharded && state_ != GroupState::kPostForward) return;
  if (layout_.has_converted_parameters()) lay_out();
  annotate(kAnnotationDomain, name_, kUnshardPhase);
  // Not the graph's memory: it may be released while the graph is still replayed.
  if (detail::thread_state().capture != nullptr) comm.park(gather_.detach());
  comm.make_room(room);
  if (state_ == GroupState::kPostForward) {
    comm.gather().wait(kept_.done());
  } else {
    bool writes = false;
    for (ShardedParameter& parameter : layout_.parameters) writes |= parameter.has_new_writes();
    if (writes) comm.gather().wait(comm.compute().record("shards written"));
  }
  gather_.issue(kept_, comm);
  state_ = GroupState::kGathering;
}

void ParamGroup::wait_for_unshard(CommContext& comm, const GatherRoom& room) {
  check_not_shown_whole();
  if (state_ != GroupState::kSharded && layout_.is_stale()) close(comm);
  unshard(comm, room);
  if (state_ == GroupState::kFull) return;
  comm.compute().wait(gather_.done());
  kept_.drop();
  gather_.open();
  for (ShardedParameter& parameter : layout_.parameters) parameter.show_value();
  watch_local_gradients();
  state_ = GroupState::kFull;
}

void ParamGroup::close(CommContext& comm) {
  if (state_ == GroupState::kSharded) return;
  const bool is_captured = detail::thread_state().capture != nullptr;
  if (state_ != GroupState::kFull || !layout_.is_cast() || is_captured) return reshard(comm);
  annotate(kAnnotationDomain, name_, kReshardPhase);
  for (ShardedParameter& parameter : layout_.parameters)
    parameter.hide_value(nn::ParameterState::kSharded);
  gather_.lend_memory();
  state_ = GroupState::kSharded;
}

void ParamGroup::reshard(CommContext& comm) {
  if (state_ == GroupState::kSharded && !gather_.holds_memory()) return;
  annotate(kAnnotationDomain, name_, kReshardPhase);
  for (ShardedParameter& parameter : layout_.parameters)
    parameter.hide_value(nn::ParameterState::kSharded);
  const GroupState before = std::exchange(state_, GroupState::kSharded);
  if (before == GroupState::kGathering && kept_.is_kept()) comm.finish_quietly(gather_.done());
  kept_.drop();
  if (before != GroupState::kPostForward) comm.park(gather_.detach());
}

void ParamGroup::reshard_to_part(CommContext& comm) {
  if (state_ != GroupState::kFull) return;
  if (!kept_.is_configured() || gather_.bytes() == 0) return reshard(comm);
  annotate(kAnnotationDomain, name_, kReshardPhase);
  for (ShardedParameter& parameter : layout_.parameters)
    parameter.hide_value(nn::ParameterState::kPostForward);
  kept_.keep(layout_, comm);
  comm.park(gather_.detach());
  state_ = GroupState::kPostForward;
}

void ParamGroup::finish(CommContext& comm) noexcept {
  try {
    reshard(comm);
    for (const DeviceEvent& event : {gather_.done(), reductions_.done}) {
      if (event.is_recorded()) event.synchronize();
    }
  } catch (const std::exception&) {
    // Errors of a stream were reported elsewhere. The work is over in any case.
  }
}

// ---- gradients ---------------------------------------------------------------------------------

void ParamGroup::on_gradient(const std::function<void()>& listener) {
  listener_ = listener;
  for (ShardedParameter& parameter : layout_.parameters) parameter.slot().set_listener(listener);
}

void ParamGroup::begin_pass() {
  for (ShardedParameter& parameter : layout_.parameters) parameter.slot().begin_pass();
}

// Expressions over local() add to grad() on compute, perhaps while a reduction is writing it: they
// wait for it first.
void ParamGroup::watch_local_gradients() {
  if (std::exchange(watches_local_gradients_, true)) return;
  for (const ShardedParameter& parameter : layout_.parameters) {
    Variable local = parameter.parameter().local();
    local.register_hook([weak = weak_from_this(), device = compute_device()](const Variable&) {
      const auto group = weak.lock();
      if (group && group->reductions_.done.is_recorded())
        current_stream(device).wait(group->reductions_.done);
      return Variable();
    });
  }
}

bool ParamGroup::ready_to_reduce() const {
  const auto unfinished = [](const ShardedParameter& p) {
    return p.slot().pending() && !p.slot().is_complete();
  };
  return has_pending_gradients() &&
         std::none_of(layout_.parameters.begin(), layout_.parameters.end(), unfinished);
}

void ParamGroup::reduce(CommContext& comm) {
  Reduction reduction({.layout = layout_, .settings = settings_, .name = name_}, reductions_, comm);
  if (!reduction.collect()) return;
  reduction.run();
  run_hooks(comm, reduction.reduced());
}

// Runs on compute, which owns the memory of the hooks and of the gradients.
void ParamGroup::run_hooks(CommContext& comm, const std::vector<nn::Parameter>& reduced) {
  bool waited = false;
  for (const nn::Parameter& parameter : reduced) {
    const Variable& local = parameter.local();
    if (!local.has_post_accumulate_hooks()) continue;
    if (!std::exchange(waited, true)) comm.compute().wait(reductions_.done);
    local.run_post_accumulate_hooks();
  }
}

void ParamGroup::drop_unused_gradients(CommContext& comm) {
  run_hooks(comm, fsdp::drop_unused_gradients(reductions_));
}

void ParamGroup::discard_pending_gradients(CommContext& comm) {
  // A reduction may still be writing the sums that wait for their all-reduce.
  if (reductions_.done.is_recorded()) comm.compute().wait(reductions_.done);
  drop_pending_gradients();
}

void ParamGroup::drop_pending_gradients() {
  for (ShardedParameter& parameter : layout_.parameters) {
    parameter.slot().discard();
    parameter.partial() = {};
  }
  reductions_.used_before.clear();
  reductions_.use_counts.clear();
}

}  // namespace tessera::fsdp
