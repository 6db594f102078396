#pragma once

/// The root state: the iteration and the streams that all sharded modules below one root share.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/fsdp/options.h"
#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/fsdp/runtime/schedule.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

class ModuleState;

/// The root state of a model. The root is the module whose forward runs first.
class RootState : public std::enable_shared_from_this<RootState> {
 public:
  explicit RootState(std::shared_ptr<CommContext> comm) : comm_(std::move(comm)) {}

  /// Adds `root` and every sharded module below it to this tree, and names groups and parameters.
  /// Takes over settings that inner modules were given for their own trees. Throws StateError for a
  /// module that is in the middle of another root's step, for a root of several modules, and if two
  /// inner modules were set differently.
  void adopt(ModuleState& root);
  void forget(ModuleState& state);
  bool is_root(const ModuleState& state) const {
    return !states_.empty() && states_.front() == &state;
  }
  bool is_idle() const { return forward_root_ == nullptr && !in_backward_pass_; }
  CommContext& comm() { return *comm_; }
  /// Uses the streams of `first` instead of its own. A setting of either applies to both. Throws
  /// StateError after this root's first forward, and if the two were set differently.
  void share_comm_of(RootState& first);

  /// `state` is the outermost module of a forward. Throws StateError naming parameters that were
  /// never materialized, or one that is on another device.
  void begin_forward(ModuleState& state);
  /// Root only: releases gathers that were not used.
  void end_forward();
  /// Called at the first hook of a backward: queues end_backward() for the end of the pass.
  void begin_backward();
  ModuleState* forward_root() const { return forward_root_; }
  /// After an exception: reshards everything and drops pending gradients.
  void abandon();
  /// Parameters were converted: they will be checked again.
  void note_conversion() { checked_parameters_ = false; }

  /// The bound, and the gathered buffers that count against it: those of groups that are not held.
  GatherRoom room() const;
  void enter(ModuleState& state);
  void leave(ModuleState& state);
  /// True for a running ancestor of the innermost running module. It keeps its values meanwhile.
  bool runs_around_another(const ModuleState& state) const;
  const std::vector<ModuleState*>& states() const { return states_; }

  Schedule schedule;
  PrefetchOptions prefetch;
  bool is_last_backward = true;
  std::optional<DeviceEvent> post_optim_event;
  /// The settings of the whole tree and of its CommContext that a caller has made.
  struct Told {
    bool prefetch = false;
    bool is_last_backward = false;
    bool max_reduces_in_flight = false;
  };
  Told told;

 private:
  struct Tellers;
  void take_over_settings(const RootState& inner, const std::string& name, Tellers& tellers);
  void end_backward(bool failed);
  void finish_backward();
  void dissolve();
  void check_parameters();

  std::shared_ptr<CommContext> comm_;
  std::vector<ModuleState*> states_;  ///< pre-order, each once; [0] is the root
  /// Modules with a group that are inside forward or backward; innermost last.
  std::vector<ModuleState*> running_;
  ModuleState* forward_root_ = nullptr;
  bool in_backward_pass_ = false;
  bool checked_parameters_ = false;
  bool used_comm_ = false;
};

}  // namespace tessera::fsdp
