#pragma once

/// The state that fully_shard and replicate attach to a module (several modules may share one group
/// and one state): the bodies of the forward and backward hooks.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/runtime/param_group.h"
#include "tessera/fsdp/runtime/root_state.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// The settings of Handle that belong to a module.
struct ModuleSettings {
  ReshardAfterForward reshard_after_forward = {};
  bool reshard_after_backward = true;
  bool reduce_gradients = true;
  bool unshard_in_backward = true;
  /// Unset: the implicit rule.
  std::optional<std::vector<std::weak_ptr<ModuleState>>> forward_prefetch = {};
  std::optional<std::vector<std::weak_ptr<ModuleState>>> backward_prefetch = {};
};

class ModuleState : public std::enable_shared_from_this<ModuleState> {
 public:
  struct Parts {
    Kind kind = Kind::kFullyShard;
    std::vector<nn::Module*> modules;  ///< the call's modules; none is inside another
    std::vector<nn::Module*> managed;  ///< all modules that the call manages
    std::shared_ptr<ParamGroup> group;
  };
  ModuleState(Parts parts, const FullyShardOptions& options);
  ~ModuleState();
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  /// Attaches the state to its modules and registers the hooks.
  void install();
  /// The module's state; null if it has none.
  static ModuleState* of(const nn::Module& module);

  Kind kind() const { return parts_.kind; }
  const std::vector<nn::Module*>& modules() const { return parts_.modules; }
  const std::vector<nn::Module*>& managed() const { return parts_.managed; }
  ParamGroup* group() const { return parts_.group.get(); }
  const FullyShardOptions& options() const { return options_; }
  ModuleSettings& settings() { return settings_; }
  const ModuleSettings& settings() const { return settings_; }
  Phase phase() const { return phase_; }
  Device device() const { return options_.mesh.device(); }
  /// "Linear", or "Linear, LayerNorm".
  std::string type_names() const;

  RootState& root_state();  ///< makes this module a root if it belongs to no tree
  const std::shared_ptr<RootState>& shared_root_state() const { return root_state_; }
  void check_between_steps() const;  ///< throws if another root's step is in progress
  void join(std::shared_ptr<RootState> root_state, int index);
  /// Its root is gone. It may run as a root of its own.
  void leave_root_state();

  void unshard_by_hand(bool wait);
  void wait_by_hand();
  void reshard_by_hand();
  /// The group is kept gathered deliberately: it does not count against the bound on buffers.
  bool is_held() const;
  /// The values stay gathered between forward and backward.
  bool keeps_after_forward() const { return is_told_to_stay(); }
  /// Prefetches the group. `held`: it is beyond the prefetch depth and does not count.
  void unshard_ahead(bool held);

  // ---- called by the tree, at the ends of passes and after failures

  /// A backward through this pass's forward is expected.
  bool backward_follows() const { return backward_follows_; }
  /// The forward of the root is over. Releases what no backward of this pass will use: values that
  /// were gathered ahead for nothing, and those of a group of which some modules did not run.
  void end_root_forward(bool root_backward_follows);
  /// The backward pass is over: runs a post-backward that did not come, and reduces.
  void end_backward();
  /// No forward and no backward is under way any more.
  void reset_pass();
  /// Releases the group's values and their memory.
  void reshard_group();
  /// Releases the group's values at the end of their use in a pass. Their memory may stay (close() of
  /// ParamGroup), unless reshard_after_forward = true asks for it.
  void close_group();

 private:
  class Link;

  void pre_forward(nn::Module& module, const nn::VisitVariables& arguments);
  void post_forward(nn::Module& module, const nn::VisitVariables* results);
  void prepare_arguments(nn::Module& module, const nn::VisitVariables& arguments);
  void enter_forward(const nn::VisitVariables& arguments);
  void leave_forward();
  void forward_failed();
  void pre_backward();
  void post_backward();
  void prefetch(const std::optional<std::vector<std::weak_ptr<ModuleState>>>& explicit_list,
                const std::vector<int>& implicit);
  void watch_arguments(const nn::VisitVariables& arguments);
  void watch_results(const nn::VisitVariables& results);
  /// After a forward: releases the values, keeps them, or keeps 1/n.
  void reshard_after_forward();
  bool is_told_to_stay() const;
  /// Its values were released; the group was `held` before that.
  void note_released(bool held);
  bool expects_backward(const nn::VisitVariables& results) const;
  bool note_ran(const nn::Module& module);
  void module_gone(const nn::Module* module);
  void check_convertible();

  Parts parts_;
  FullyShardOptions options_;
  ModuleSettings settings_;
  std::shared_ptr<RootState> root_state_;
  int index_ = 0;  ///< position in the tree's states
  Phase phase_ = Phase::kIdle;
  int depth_ = 0;                  ///< nested calls of its modules in progress
  bool backward_follows_ = false;  ///< this pass's forward will have a backward
  bool opened_by_hand_ = false;
  bool gathered_beyond_depth_ = false;
  std::vector<const nn::Module*> ran_;  ///< group of several modules: those that ran in this pass;
                                        ///< cleared when all have
};

}  // namespace tessera::fsdp
