#pragma once

/// What happens around each forward and backward of sharded modules: the bodies of the hooks, and
/// what the modules of one root share.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/fsdp/comm_context.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/param_group.h"
#include "tessera/fsdp/schedule.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

class ModuleState;

/// All sharded modules below one root. The root is the module whose forward runs first.
class Tree : public std::enable_shared_from_this<Tree> {
 public:
  explicit Tree(Device device) : comm(device) {}

  /// Makes `root` and every sharded module below it this tree's; names groups and parameters.
  /// Throws StateError for a module that is in the middle of another root's step.
  void adopt(ModuleState& root);
  void forget(ModuleState& state);
  bool is_root(const ModuleState& state) const {
    return !states_.empty() && states_.front() == &state;
  }
  bool is_idle() const { return forward_root_ == nullptr && !in_backward_pass_; }

  /// `state` is the outermost module of a forward. Throws StateError naming parameters that were
  /// never materialised.
  void begin_forward(ModuleState& state);
  /// Root only: drops gathers that nobody used.
  void end_forward();
  /// The first sign of a backward: arranges for end_backward() at the end of the pass.
  void begin_backward();
  ModuleState* forward_root() const { return forward_root_; }
  /// After an exception: everything is sharded and nothing is pending.
  void abandon();

  /// Buffers of gathered values that count against the bound: those of groups that are not held.
  int live_buffers() const;
  void enter(ModuleState& state);
  void leave(ModuleState& state);
  /// Gathers ahead what the schedule says.
  void prefetch(std::optional<int> index);
  const std::vector<ModuleState*>& states() const { return states_; }

  CommContext comm;
  Schedule schedule;

 private:
  void end_backward(bool failed);
  void finish_backward();
  void dissolve();
  bool is_held(const ModuleState& state) const;
  void check_materialized(nn::Module& root);

  std::vector<ModuleState*> states_;  ///< pre-order; [0] is the root
  std::vector<ModuleState*>
      running_;  ///< with a group, between entering and leaving forward or backward; innermost last
  ModuleState* forward_root_ = nullptr;
  bool in_backward_pass_ = false;
  bool checked_materialized_ = false;
};

/// The state that fully_shard attaches to a module.
class ModuleState : public std::enable_shared_from_this<ModuleState> {
 public:
  ModuleState(nn::Module& module, const FullyShardOptions& options,
              std::shared_ptr<ParamGroup> group);
  ~ModuleState();
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  /// Registers the hooks; separate from construction because they hold weak pointers to this.
  void install();

  nn::Module& module() const { return module_; }
  ParamGroup* group() const { return group_.get(); }
  Device device() const { return options_.mesh.device(); }
  Tree& tree();  ///< becomes a root of its own when it has none
  const std::shared_ptr<Tree>& shared_tree() const { return tree_; }
  void join(std::shared_ptr<Tree> tree, int index);
  void leave_tree() { tree_.reset(); }

  void unshard_by_hand();
  void reshard_by_hand();
  bool is_opened_by_hand() const { return opened_by_hand_; }
  /// The group's options keep its value between forward and backward.
  bool is_told_to_stay() const;

 private:
  friend class Tree;
  /// Where this module is in an iteration.
  enum class Phase : std::uint8_t { kIdle, kForward, kPreBackward, kPostBackward };

  void pre_forward(const nn::VisitVariables& arguments);
  void post_forward(const nn::VisitVariables* results);
  void pre_backward();
  void post_backward();
  void watch_inputs(const nn::VisitVariables& arguments);
  void watch_results(const nn::VisitVariables& results);
  void reshard_group();
  bool stays_after_forward() const;

  nn::Module& module_;
  FullyShardOptions options_;
  std::shared_ptr<ParamGroup> group_;
  std::shared_ptr<Tree> tree_;
  int index_ = 0;  ///< among the tree's states
  Phase phase_ = Phase::kIdle;
  bool opened_by_hand_ = false;
};

}  // namespace tessera::fsdp
