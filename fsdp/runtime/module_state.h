#pragma once

/// The state that fully_shard and replicate attach to a module, or to several that share one group:
/// the bodies of the hooks around forward and backward.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/runtime/param_group.h"
#include "tessera/fsdp/runtime/tree.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// What the setters of Handle change in a module.
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
    std::vector<nn::Module*> modules;  ///< those of the call, none inside another
    std::vector<nn::Module*> managed;  ///< all that the call looked after
    std::shared_ptr<ParamGroup> group;
  };
  ModuleState(Parts parts, const FullyShardOptions& options);
  ~ModuleState();
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  /// Attaches it to its modules and registers the hooks.
  void install();
  /// Of the module, null where it has none.
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

  Tree& tree();  ///< becomes a root of its own when it has none
  const std::shared_ptr<Tree>& shared_tree() const { return tree_; }
  void check_between_steps() const;  ///< throws where another root's step is under way
  void join(std::shared_ptr<Tree> tree, int index);
  /// Its root is gone. It may run as a root of its own.
  void leave_tree();

  void unshard_by_hand(bool wait);
  void wait_by_hand();
  void reshard_by_hand();
  /// The group's value stays for a reason of its own: it does not count against the bound.
  bool is_held() const;
  /// The value stays between forward and backward.
  bool keeps_after_forward() const { return is_told_to_stay(); }
  /// Gathers ahead. `held`: beyond the depth that the bound knows.
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
  /// Releases the group's values.
  void reshard_group();

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
  /// After a forward: releases, keeps all, or keeps a part.
  void reshard_after_forward();
  bool is_told_to_stay() const;
  bool expects_backward(const nn::VisitVariables& results) const;
  bool note_ran(const nn::Module& module);
  void module_gone(const nn::Module* module);
  void check_convertible();

  Parts parts_;
  FullyShardOptions options_;
  ModuleSettings settings_;
  std::shared_ptr<Tree> tree_;
  int index_ = 0;  ///< among the tree's states
  Phase phase_ = Phase::kIdle;
  int depth_ = 0;                  ///< calls of its modules under way, one inside another
  bool backward_follows_ = false;  ///< of this pass's forward
  bool opened_by_hand_ = false;
  bool gathered_beyond_depth_ = false;
  std::vector<const nn::Module*> ran_;  ///< of a group of several: in this pass, until all have
};

}  // namespace tessera::fsdp
