#pragma once

/// What fully_shard or replicate attached to a module: everything that can be set and asked after
/// the call.
///
/// Scope. "Below" means this module and all sharded modules under it: settings reach them unless
/// {.recurse = false}. Lists, events, hooks, reshard() and unshard() concern this module alone.
/// Settings take effect at the next phase that reads them, also between forward and backward. Those
/// for the whole tree are the root's, which the first forward decides. What an inner module was
/// told for a tree of its own until then, the root's tree takes over (of events: waits for them);
/// where two inner modules were told differently, that throws StateError naming both.
///
/// A setting that can act on no module that it reaches throws InvalidArgument naming the module.
/// These are legal and do nothing: any call on a module without a group (nothing of its own to
/// shard), and everything that a world of one rank makes superfluous.
///
/// A light handle, valid while the module lives; used by the thread of its rank.

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
#include "tessera/fsdp/runtime/copy_counters.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::fsdp {

class ModuleState;

/// Which call attached the handle.
enum class Kind : std::uint8_t { kFullyShard, kReplicate };
const char* kind_name(Kind kind);  ///< "fully_shard", "replicate"

/// Where a group's value stands.
enum class GroupState : std::uint8_t {
  kSharded,      ///< no gathered memory
  kPostForward,  ///< 1/n of it is kept (ReshardAfterForward of a number)
  kGathering,    ///< a gather was issued; nobody has waited for it
  kFull,         ///< values can be read
};
const char* group_state_name(GroupState state);

/// Where a module is in an iteration.
enum class Phase : std::uint8_t { kIdle, kForward, kPreBackward, kPostBackward };
const char* phase_name(Phase phase);

struct RecurseOptions {
  bool recurse = true;
};

struct UnshardOptions {
  bool async = false;  ///< do not make compute wait: the handle's wait() does, or the next forward
};

/// A gather under way. Dropping it is legal: the next forward waits, and what nobody used is
/// dropped at the end of the iteration.
class UnshardHandle {
 public:
  UnshardHandle() = default;  ///< wait() does nothing
  explicit UnshardHandle(std::weak_ptr<ModuleState> state) : state_(std::move(state)) {}
  /// Makes compute wait and opens the values. A second time does nothing.
  void wait();

 private:
  std::weak_ptr<ModuleState> state_;
};

/// `tensors`: each parameter's reduced gradient rows of this rank, in the reduce dtype, before they
/// are scaled (f16: but for the part that comes first, see reduction.h); to be changed in place, on
/// the current stream.
using AllReduceHook = std::function<void(std::span<const Tensor> tensors)>;
/// In place of distributed::all_gather and reduce_scatter (a sum), with their meaning; where those
/// would be called, so not where one rank along the shard axis has nothing to exchange.
using CustomCollective =
    std::function<void(distributed::ProcessGroup& group, std::span<const Tensor> inputs,
                       std::span<const Tensor> outputs, const distributed::Label& label)>;

/// How a group lies over the axes of its mesh: FSDP, HSDP, replicate and the ZeRO stages are rows
/// of one table (README.md).
struct GroupPlacements {
  distributed::Placements parameter;  ///< of local() ...
  distributed::Placements kept;       ///< ... of what is kept between forward and backward
  distributed::Placements gradient;   ///< of grad()
  distributed::Placements optimizer;  ///< of optimizer state
};

class Handle {
 public:
  explicit Handle(ModuleState& state) : state_(&state) {}

  // ---- values by hand ------------------------------------------------------------------------

  /// Gathers this module's own group, so that value() can be read, until reshard() or the end of
  /// the module's next forward or backward. No-op when already gathered. Also before any forward.
  UnshardHandle unshard(const UnshardOptions& options = {}) const;
  /// Releases the group's gathered value. No-op when sharded.
  void reshard() const;

  // ---- what a pass does ----------------------------------------------------------------------

  /// false: the next backward collects gradients and reduces nothing; the first one with true
  /// reduces all that waited, once. Both reductions of HSDP: replaces set_requires_all_reduce().
  void set_requires_gradient_sync(bool value, const RecurseOptions& options = {}) const;
  /// HSDP: false keeps reduce-scatter and puts off the all-reduce among the replicas. Throws where
  /// no group below has replicas beside shards.
  void set_requires_all_reduce(bool value, const RecurseOptions& options = {}) const;
  /// false: another backward of the same iteration follows, so nothing is concluded at the end of
  /// this one: compute does not wait for the reduces, and the recorded order stays; grad() is not
  /// to be read, stepped with or dropped before the last one. For the whole tree.
  void set_is_last_backward(bool value) const;
  /// Takes the option's place; the root is then treated as every other. Throws where nothing below
  /// is sharded (replicate keeps its values).
  void set_reshard_after_forward(bool value, const RecurseOptions& options = {}) const;
  /// false: values stay gathered after backward, for the next micro-batch.
  void set_reshard_after_backward(bool value, const RecurseOptions& options = {}) const;
  /// false: backward does not gather this module, whose weights it does not read (an embedding).
  void set_unshard_in_backward(bool value) const;

  // ---- order and streams ---------------------------------------------------------------------

  /// For the whole tree; call it on the root. Throws below 0.
  void set_prefetch(const PrefetchOptions& options) const;
  /// Gathered at this module's pre-forward (pre-backward), after its own gather, in the order
  /// given; replaces the implicit rule for this module, also by an empty list given before. Throws
  /// for a module that is not sharded.
  void set_modules_to_forward_prefetch(const std::vector<nn::Module*>& modules) const;
  void set_modules_to_backward_prefetch(const std::vector<nn::Module*>& modules) const;
  /// At the next forward gathers wait for this event, recorded after the optimizer's step, instead
  /// of for all that compute was given so far. Forgotten once used: set it every step. Throws for a
  /// module that is not the root, and for an event never recorded.
  void set_post_optim_event(const Event& event) const;
  /// Reduces that may be in flight beside the gradients being filled; default 1. 0 saves one group
  /// of gradient memory and gives up their overlap. Throws below 0. For the whole tree.
  void set_reduce_scatter_max_input_buffers(int count) const;
  /// Reduce-scatters go through a process group of their own, so that a transport which works its
  /// collectives off one by one does not put gathers behind them. All ranks call it alike.
  void set_separate_reduce_scatter_group(bool value, const RecurseOptions& options = {}) const;

  // ---- gradients -----------------------------------------------------------------------------

  /// Gradients are divided by it instead of by the number of data-parallel ranks. Throws unless
  /// finite and > 0. Of this module alone unless {.recurse = true}.
  void set_gradient_divide_factor(double factor,
                                  const RecurseOptions& options = {.recurse = false}) const;
  /// Runs between the reduction and the scaling: with native replicas after their all-reduce, else
  /// after the reduce-scatter (replicas by hand), on `stream` or the stream of the reduction.
  /// Throws when a stream is given to a group with native replicas. An empty hook removes it.
  void set_all_reduce_hook(AllReduceHook hook, std::optional<Stream> stream = {}) const;
  /// Empty functions restore the library's. Throw for replicate, which has neither.
  void set_custom_all_gather(CustomCollective function) const;
  void set_custom_reduce_scatter(CustomCollective function) const;
  /// Trainable parameters without a gradient take part in the reduction with zeros, where this rank
  /// or others have some; if no rank had any, grad() stays undefined (one host read a step). Their
  /// modules run on every rank all the same. Parameters tagged "optional" are treated so always.
  void set_reduce_scatter_unused_params(bool value, const RecurseOptions& options = {}) const;
  /// Drops gradients of this module and those below that were collected and not reduced yet.
  void discard_pending_gradients() const;

  // ---- after trouble -------------------------------------------------------------------------

  /// Gives up the iteration: everything is sharded, nothing is in flight, pending gradients are
  /// dropped; grad() stays. Throws StateError for a module that is not the root.
  void reset_iter_state() const;

  // ---- asking --------------------------------------------------------------------------------

  Kind kind() const;
  const FullyShardOptions& options() const;  ///< of replicate: those that it has
  GroupState state() const;                  ///< kSharded without a group
  Phase phase() const;
  bool is_root() const;  ///< once a forward decided it
  bool has_group() const;
  /// The group's name in traces, errors and labels: the module's path() once the root ran forward,
  /// whether the modules around it are sharded or not; "root" for the outermost module; joined with
  /// ", " for a group of several modules.
  std::string group_name() const;
  /// Full names of the group's parameters, in the order of communication.
  std::vector<std::string> parameter_names() const;
  /// The modules whose parameters and buffers this call looked after, depth first.
  std::vector<nn::Module*> managed_modules() const;
  /// Empty without a group; of its first parameter, where they are cut along different dims.
  GroupPlacements placements() const;
  /// What the setters said, of this module; prefetch() of its tree.
  bool requires_gradient_sync() const;
  bool requires_all_reduce() const;
  ReshardAfterForward reshard_after_forward() const;  ///< of the option, or what replaced it
  bool reshard_after_backward() const;
  bool unshard_in_backward() const;
  double gradient_divide_factor() const;  ///< 1 without a group
  bool reduce_scatter_unused_params() const;
  PrefetchOptions prefetch() const;
  /// Nothing: the implicit rule. Of a group of several modules its first stands for it.
  std::optional<std::vector<nn::Module*>> modules_to_forward_prefetch() const;
  std::optional<std::vector<nn::Module*>> modules_to_backward_prefetch() const;
  std::int64_t slot_bytes()
      const;  ///< of all trainable parameters' gradient slots, padding included
  std::int64_t gathered_bytes() const;  ///< of the whole group, alignment and padding included
  /// Bytes copied on this rank so far by all groups of the tree, by cause.
  CopyCounters copies() const;

  ModuleState& module_state() const { return *state_; }

 private:
  ModuleState* state_;
};

/// The handle of a module that was sharded or replicated. Throws StateError `no FSDP state on
/// <name>` for others.
Handle of(const nn::Module& module);
bool has_state(const nn::Module& module);

struct ShardedModulesOptions {
  bool root_only = false;  ///< only those that no other sharded module contains
};
/// Modules with a state, depth first, each once.
std::vector<nn::Module*> sharded_modules(nn::Module& model,
                                         const ShardedModulesOptions& options = {});

/// Several roots use one set of communication streams (pipeline stages on one device), and what
/// set_reduce_scatter_max_input_buffers() told one of them holds for all. Throws StateError after
/// their first forward and if two were told differently, InvalidArgument for a module without a
/// state.
void share_comm_context(const std::vector<nn::Module*>& roots);

}  // namespace tessera::fsdp
