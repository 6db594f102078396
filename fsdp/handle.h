#pragma once

/// The object that fully_shard and replicate return: settings and queries after the call.
///
/// Scope: "below" means this module and all sharded modules under it. Settings apply to all of them
/// unless {.recurse = false} is passed. Lists, events, hooks, reshard() and unshard() concern this
/// module alone. A setting takes effect at the next phase that reads it, even between forward and
/// backward. Settings of the whole tree belong to the root, which the first forward determines. The
/// root takes over such a setting from an inner module that was set before that forward (the gather
/// stream waits for its post-optimizer event). If two inner modules were set differently, that
/// forward throws StateError naming both.
///
/// A setting that can have no effect on any module below throws InvalidArgument naming the module.
/// Two cases are legal and do nothing: any call on a module without a group (it has no parameters
/// of its own to shard), and everything that a world of one rank makes superfluous.
///
/// A Handle is a light reference, valid while the module lives. Only the rank's own thread may use
/// it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::fsdp {

class ModuleState;

/// The call that attached the state.
enum class Kind : std::uint8_t { kFullyShard, kReplicate };
const char* kind_name(Kind kind);  ///< "fully_shard", "replicate"

/// The state of a group's gathered values.
enum class GroupState : std::uint8_t {
  kSharded,      ///< value() cannot be read
  kPostForward,  ///< 1/n of the values is kept, see ReshardAfterForward(n)
  kGathering,    ///< a gather was issued and has not been waited for
  kFull,         ///< value() can be read
};
const char* group_state_name(GroupState state);

/// The phase of an iteration that a module is in.
enum class Phase : std::uint8_t { kIdle, kForward, kPreBackward, kPostBackward };
const char* phase_name(Phase phase);

struct RecurseOptions {
  bool recurse = true;
};

struct UnshardOptions {
  bool async = false;  ///< return without making the compute stream wait: wait() or the next
                       ///< forward does
};

/// A gather in flight. The caller may drop the handle: the next forward waits for the gather, and
/// an unused gather is released at the end of the iteration.
class UnshardHandle {
 public:
  UnshardHandle() = default;  ///< wait() does nothing
  explicit UnshardHandle(std::weak_ptr<ModuleState> state) : state_(std::move(state)) {}
  /// Makes the compute stream wait for the gather, then opens the values. A second call does
  /// nothing.
  void wait();

 private:
  std::weak_ptr<ModuleState> state_;
};

/// `tensors`: this rank's rows of each parameter's reduced gradient, in the reduce dtype, before
/// scaling (f16 gradients have been divided by the pre-factor, see reduction.h). The hook changes
/// them in place, on the current stream.
using AllReduceHook = std::function<void(std::span<const Tensor> tensors)>;
/// Replaces distributed::all_gather or distributed::reduce_scatter (a sum), with the same meaning.
/// It is called exactly where those would be: not where the shard axis has one rank and nothing is
/// communicated.
using CustomCollective =
    std::function<void(distributed::ProcessGroup& group, std::span<const Tensor> inputs,
                       std::span<const Tensor> outputs, const distributed::Label& label)>;

/// The placements of a group over the axes of its mesh. README.md shows FSDP, HSDP, replicate and
/// the ZeRO stages as rows of one table.
struct GroupPlacements {
  distributed::Placements parameter;  ///< of local()
  distributed::Placements kept;       ///< of the values kept between forward and backward
  distributed::Placements gradient;   ///< of grad()
  distributed::Placements optimizer;  ///< of optimizer state
};

class Handle {
 public:
  explicit Handle(ModuleState& state) : state_(&state) {}

  // ---- unshard and reshard by hand -----------------------------------------------------------

  /// All-gathers this module's own group, so that value() can be read until reshard() or the end of
  /// the module's next forward or backward. Does nothing if already gathered. Legal before any
  /// forward.
  UnshardHandle unshard(const UnshardOptions& options = {}) const;
  /// Releases the group's gathered values and their memory, which may otherwise stay between steps
  /// (ReshardAfterForward). Does nothing if there is none.
  void reshard() const;

  // ---- forward and backward ------------------------------------------------------------------

  /// false: backward collects gradients and reduces nothing. The first backward with true reduces
  /// everything collected so far, once. Covers both reductions of HSDP: it also sets
  /// set_requires_all_reduce() to `value`.
  void set_requires_gradient_sync(bool value, const RecurseOptions& options = {}) const;
  /// HSDP: false runs the reduce-scatter and postpones the all-reduce over the replica axis. Throws
  /// if no group below has both a shard axis and a replica axis.
  void set_requires_all_reduce(bool value, const RecurseOptions& options = {}) const;
  /// false: another backward of the same iteration follows, so this one does not end the iteration:
  /// the compute stream does not wait for the reductions and the recorded order is kept. Until the
  /// last backward, do not read, step with or drop grad(). Applies to the whole tree.
  void set_is_last_backward(bool value) const;
  /// Overrides the option; the root is then treated like any other module. Throws if nothing below
  /// is sharded (replicate always keeps its values).
  void set_reshard_after_forward(bool value, const RecurseOptions& options = {}) const;
  /// false: values stay gathered after backward, for the next microbatch.
  void set_reshard_after_backward(bool value, const RecurseOptions& options = {}) const;
  /// false: backward does not gather this module, because its backward does not read the weights
  /// (an embedding).
  void set_unshard_in_backward(bool value) const;

  // ---- prefetch order and streams ------------------------------------------------------------

  /// Applies to the whole tree; call it on the root. Throws for a negative depth.
  void set_prefetch(const PrefetchOptions& options) const;
  /// The modules to gather at this module's pre-forward (pre-backward), after its own gather, in
  /// the given order. The list replaces the implicit rule for this module, even an empty list.
  /// Throws for a module that is not sharded.
  void set_modules_to_forward_prefetch(const std::vector<nn::Module*>& modules) const;
  void set_modules_to_backward_prefetch(const std::vector<nn::Module*>& modules) const;
  /// The gathers of the next forward wait for this event (recorded after the optimizer's step)
  /// instead of for all work issued to the compute stream so far. Used once: set it every step.
  /// Throws for a module that is not the root, and for an event that was never recorded.
  void set_post_optim_event(const DeviceEvent& event) const;
  /// The number of reductions that may be in flight while the next group's gradients are written;
  /// default 1. 0 saves one group of gradient memory; reductions then no longer overlap backward.
  /// Throws for a negative count. Applies to the whole tree.
  void set_reduce_scatter_max_input_buffers(int count) const;
  /// Reduce-scatters use a process group of their own. A transport that runs the collectives of a
  /// group one after another then does not queue gathers behind them. All ranks make the same call.
  void set_separate_reduce_scatter_group(bool value, const RecurseOptions& options = {}) const;

  // ---- gradients -----------------------------------------------------------------------------

  /// Gradients are divided by `factor` instead of by the number of data-parallel ranks. Throws
  /// unless it is finite and > 0. Applies to this module only, unless {.recurse = true}.
  void set_gradient_divide_factor(double factor,
                                  const RecurseOptions& options = {.recurse = false}) const;
  /// Runs after the reduction and before the scaling: after the all-reduce if the group has a
  /// replica axis, else after the reduce-scatter (for replicas that the caller reduces). Runs on
  /// `stream`, or on the reduction's own stream. Throws when a stream is given to a group with a
  /// replica axis. An empty hook removes it.
  void set_all_reduce_hook(AllReduceHook hook, std::optional<DeviceStream> stream = {}) const;
  /// An empty function restores the default. Both throw for replicate, which runs neither
  /// collective.
  void set_custom_all_gather(CustomCollective function) const;
  void set_custom_reduce_scatter(CustomCollective function) const;
  /// A trainable parameter without a gradient takes part in the reduction with zeros, since other
  /// ranks may have one. If no rank had a gradient, grad() stays undefined (one host read per
  /// step). Every rank must still run the modules. Parameters tagged "optional" always behave this
  /// way.
  void set_reduce_scatter_unused_params(bool value, const RecurseOptions& options = {}) const;
  /// Drops the gradients of this module and those below that were collected but not reduced.
  void discard_pending_gradients() const;

  // ---- after an error ------------------------------------------------------------------------

  /// Aborts the iteration: every group is resharded, no communication is in flight, pending
  /// gradients are dropped. grad() is kept. Throws StateError for a module that is not the root.
  void reset_iter_state() const;

  // ---- queries -------------------------------------------------------------------------------

  Kind kind() const;
  const FullyShardOptions& options() const;  ///< for replicate: its options as FullyShardOptions
  GroupState state() const;                  ///< kSharded if there is no group
  Phase phase() const;
  bool is_root() const;  ///< valid after the first forward
  bool has_group() const;
  /// The group's name in traces, errors and labels: the module's path() once the root has run
  /// forward (whether the enclosing modules are sharded or not), "root" for the outermost module.
  /// The names of a group of several modules are joined with ", ".
  std::string group_name() const;
  /// Full names of the group's parameters, in communication order.
  std::vector<std::string> parameter_names() const;
  /// The modules whose parameters and buffers this call manages, depth first.
  std::vector<nn::Module*> managed_modules() const;
  /// The placements of the group's first parameter (others may be sharded along another dim). Empty
  /// if the module has no group.
  GroupPlacements placements() const;
  /// The values set on this module; prefetch() is that of the whole tree.
  bool requires_gradient_sync() const;
  bool requires_all_reduce() const;
  ReshardAfterForward reshard_after_forward() const;  ///< the option, or the value set later
  bool reshard_after_backward() const;
  bool unshard_in_backward() const;
  double gradient_divide_factor() const;  ///< 1 if there is no group
  bool reduce_scatter_unused_params() const;
  PrefetchOptions prefetch() const;
  /// Unset: the implicit rule. A group of several modules is listed as its first module.
  std::optional<std::vector<nn::Module*>> modules_to_forward_prefetch() const;
  std::optional<std::vector<nn::Module*>> modules_to_backward_prefetch() const;
  /// Bytes of all trainable parameters' gradient slots, padding included.
  std::int64_t slot_bytes() const;
  /// Bytes of the group's gathered memory, alignment and padding included.
  std::int64_t gathered_bytes() const;
  /// Bytes that all groups of the tree copied on this rank so far, by cause.
  CopyCounters copies() const;

  ModuleState& module_state() const { return *state_; }

 private:
  ModuleState* state_;
};

/// The handle of a module that was sharded or replicated. Otherwise throws StateError `no FSDP
/// state on <name>`.
Handle of(const nn::Module& module);
bool has_state(const nn::Module& module);

struct ShardedModulesOptions {
  bool root_only = false;  ///< only modules that no other sharded module contains
};
/// Modules with a state, depth first, each once.
std::vector<nn::Module*> sharded_modules(nn::Module& model,
                                         const ShardedModulesOptions& options = {});

/// Several roots share one set of communication streams (pipeline stages on one device). A
/// set_reduce_scatter_max_input_buffers() value of one root then applies to all. Throws StateError
/// after their first forward, and if two roots were set differently; InvalidArgument for a module
/// without a state.
void share_comm_context(const std::vector<nn::Module*>& roots);

}  // namespace tessera::fsdp
