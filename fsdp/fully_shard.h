#pragma once

/// Fully sharded data parallelism: every rank keeps 1/W of each parameter, of its gradient and of
/// its optimizer state, and the whole parameter exists only while it is computed with.
///
///     for (auto& [name, block] : model.children()) fully_shard(*block, {.mesh = world.mesh()}); //
///     inner groups first fully_shard(model, {.mesh = world.mesh()}); // the rest
///     nn::initialize(model, {.seed = 1}); // shards only
///
/// Each call makes ONE group of the parameters of the module's subtree that no earlier call has
/// claimed; the group is gathered before the module's forward and backward, released after them,
/// and its gradients are reduce-scattered (mean over the ranks) as soon as its backward is done.
/// All ranks make the same calls and run the same modules in the same order. See fsdp/README.md for
/// streams, events and memory.

#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

class ModuleState;

/// What fully_shard attached to a module. A light handle, valid while the module lives.
class Handle {
 public:
  explicit Handle(ModuleState& state) : state_(&state) {}

  /// Gathers this module's own group, so that value() can be read, until reshard() or the end of
  /// the module's next forward. No-op without a group, and when already gathered.
  void unshard() const;
  /// Releases the group's gathered value. No-op when sharded.
  void reshard() const;
  /// For the whole tree below the root that this module belongs to; call it on the root. Default:
  /// both on.
  void set_prefetch(const PrefetchOptions& options) const;
  /// Reduces that may be in flight beside the gradients being filled; default 1. 0 saves one group
  /// of gradient memory and gives up their overlap. Throws InvalidArgument below 0. For the whole
  /// tree; call it on the root.
  void set_max_reduces_in_flight(int count) const;
  /// Drops gradients of this module and those below that were collected and not reduced yet: called
  /// from a hook in the middle of a backward. (One that failed has dropped them itself.)
  void discard_pending_gradients() const;

  bool has_group() const;
  /// The group's name: the module's qualified name once the root ran forward, "root" for the root.
  std::string group_name() const;
  /// Full names of the group's parameters, in the order of communication.
  std::vector<std::string> parameter_names() const;

 private:
  ModuleState* state_;
};

/// Shards `module` in place. Works before or after initialize(); values already there are cut down
/// without communication, every rank trusting that all hold the same. Throws InvalidArgument for: a
/// missing mesh or one that is not 1-D; a parameter without dims; trainable parameters of different
/// dtypes in one group. StateError for: a second call on the module; a parameter that another group
/// owns (tied across groups, or the outer module wrapped before the inner one), naming both.
Handle fully_shard(nn::Module& module, const FullyShardOptions& options);

/// The handle of a module that was sharded. Throws StateError `no FSDP state on <name>` for others.
Handle of(const nn::Module& module);

}  // namespace tessera::fsdp
