#pragma once

/// What all sharded modules below one root share: the iteration they are in, and the streams.

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

/// All sharded modules below one root. The root is the module whose forward runs first.
class Tree : public std::enable_shared_from_this<Tree> {
 public:
  explicit Tree(std::shared_ptr<CommContext> comm) : comm_(std::move(comm)) {}

  /// Makes `root` and every sharded module below it this tree's; names groups and parameters. What
  /// inner modules were told for their own trees holds for this one. Throws StateError for a module
  /// that is in the middle of another root's step, for a root of several modules, and where two
  /// inner modules were told differently.
  void adopt(ModuleState& root);
  void forget(ModuleState& state);
  bool is_root(const ModuleState& state) const {
    return !states_.empty() && states_.front() == &state;
  }
  bool is_idle() const { return forward_root_ == nullptr && !in_backward_pass_; }
  CommContext& comm() { return *comm_; }
  /// Uses the streams of `first` in place of its own. What either was told about them holds for
  /// both. Throws StateError once gathers were issued, and where the two were told differently.
  void share_comm_of(Tree& first);

  /// `state` is the outermost module of a forward. Throws StateError naming parameters that were
  /// never materialised, or lie on another device.
  void begin_forward(ModuleState& state);
  /// Root only: drops gathers that nobody used.
  void end_forward();
  /// The first sign of a backward: arranges for end_backward() at the end of the pass.
  void begin_backward();
  ModuleState* forward_root() const { return forward_root_; }
  /// After an exception: everything is sharded and nothing is pending.
  void abandon();
  /// Parameters were converted: they are checked again.
  void note_conversion() { checked_parameters_ = false; }

  /// Buffers of gathered values that count against the bound: those of groups that are not held.
  GatherRoom room() const;
  void enter(ModuleState& state);
  void leave(ModuleState& state);
  /// An ancestor of the innermost running module, which keeps its value meanwhile.
  bool runs_around_another(const ModuleState& state) const;
  const std::vector<ModuleState*>& states() const { return states_; }

  Schedule schedule;
  PrefetchOptions prefetch;
  bool is_last_backward = true;
  std::optional<Event> post_optim_event;
  /// Which settings of the whole tree (also that of its CommContext) a caller made.
  struct Told {
    bool prefetch = false;
    bool is_last_backward = false;
    bool max_reduces_in_flight = false;
  };
  Told told;

 private:
  struct Tellers;
  void take_over_settings(const Tree& inner, const std::string& name, Tellers& tellers);
  void end_backward(bool failed);
  void finish_backward();
  void dissolve();
  void check_parameters();

  std::shared_ptr<CommContext> comm_;
  std::vector<ModuleState*> states_;  ///< pre-order, each once; [0] is the root
  std::vector<ModuleState*>
      running_;  ///< with a group, between entering and leaving forward or backward; innermost last
  ModuleState* forward_root_ = nullptr;
  bool in_backward_pass_ = false;
  bool checked_parameters_ = false;
  bool used_comm_ = false;
};

}  // namespace tessera::fsdp
