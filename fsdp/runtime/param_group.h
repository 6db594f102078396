#pragma once

/// The parameters of one fully_shard or replicate call. They are gathered, resharded and reduced
/// together.
///
/// The group is the sequence of its phases; each phase keeps its own data:
///
///     group_layout.h   what the group consists of
///     gather.h         unshard: the gathered values and the all-gathers that fill them
///     kept_part.h      the 1/n that stays between forward and backward, if that was asked for
///     reduction.h      reduce: from gradient slots into grad()
///
/// States, and the calls that change them:
///
///     kSharded, kPostForward --unshard()--> kGathering --wait_for_unshard()--> kFull
///     kGathering, kFull, kPostForward --reshard()--> kSharded
///     kFull --close()--> kSharded, perhaps with the memory of the values
///     kFull --reshard_to_part()--> kPostForward (kSharded if no part is kept)
///
/// Used by the rank's own thread.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/fsdp/runtime/gather.h"
#include "tessera/fsdp/runtime/group_layout.h"
#include "tessera/fsdp/runtime/kept_part.h"
#include "tessera/fsdp/runtime/reduction.h"

namespace tessera::fsdp {

class ParamGroup final : public nn::ParameterOwner,
                         public std::enable_shared_from_this<ParamGroup> {
 public:
  /// Lays out the parameters and takes ownership of them. Throws as fully_shard does.
  static std::shared_ptr<ParamGroup> create(GroupRequest request, const FullyShardOptions& options);

  /// Graphs that still need the gathered values will report that the module is gone.
  ~ParamGroup() override;

  std::string group_name() const override { return name_; }
  bool has_pending_gradients() const override;
  void prepare_conversion() override;
  Device compute_device() const override { return layout_.mesh.device(); }
  void set_name(std::string name) { name_ = std::move(name); }
  Kind kind() const { return layout_.kind; }
  const std::vector<ShardedParameter>& parameters() const { return layout_.parameters; }
  GroupState state() const { return state_; }
  GroupSettings& settings() { return settings_; }
  const GroupSettings& settings() const { return settings_; }
  bool has_shards() const { return layout_.shard_axis.has_value(); }
  bool has_replicas() const { return layout_.replica_axis.has_value(); }
  const std::shared_ptr<distributed::ProcessGroup>& shard_group() const {
    return layout_.shard_group;
  }
  int data_parallel_size() const { return layout_.data_parallel_size(); }
  bool needs_zeros() const { return fsdp::needs_zeros(layout_, settings_); }
  bool is_trained() const { return layout_.is_trained(); }
  /// A gather only casts: this rank stores all rows of all parameters on the device, some in another
  /// dtype than that of their values.
  bool gathers_alone() const { return layout_.is_unsharded() && gather_.bytes() > 0; }
  /// Gathered memory is held: it counts against the bound on buffers.
  bool occupies_memory() const {
    return (state_ == GroupState::kGathering || state_ == GroupState::kFull) && gather_.bytes() > 0;
  }
  /// Size of the gathered memory, alignment and padding rows included.
  std::int64_t gathered_bytes() const { return gather_.bytes(); }
  std::int64_t accumulated_bytes() const;

  /// Issues the gather on the gather stream; no-op when gathered. `room`: the bound on gathered
  /// buffers and the number that other groups have (fsdp/README.md).
  void unshard(CommContext& comm, const GatherRoom& room);
  /// Makes compute wait for the gather and opens the values. Gathers first if necessary, and again
  /// if local() was written since. No-op when full.
  void wait_for_unshard(CommContext& comm, const GatherRoom& room);
  /// Closes the values and parks their memory.
  void reshard(CommContext& comm);
  /// Closes the values, as reshard() does. If they are casts of local(), their memory stays, and
  /// optimizers may write the parameters' cast copies there; but not while a CUDA graph is
  /// captured, which has memory of its own. No-op when sharded.
  void close(CommContext& comm);
  /// Makes compute wait until no gather reads the shards, including a gather that was dropped.
  void wait_for_readers(CommContext& comm) const { gather_.wait_for_readers(comm); }
  /// Like reshard(), but keeps 1/n of the values if ReshardAfterForward(n) says so. No-op unless
  /// full.
  void reshard_to_part(CommContext& comm);
  /// Frees the memory that is kept between the gathers of one step (chunks gathered over replicas).
  void end_step(CommContext& comm) { gather_.end_step(comm); }
  /// FullParameters holds `change` more (or fewer) of the parameters. While it holds any, the group
  /// must not run: its next gather or use throws StateError.
  void note_shown_whole(int change) { shown_whole_ += change; }
  /// Called when the module is destroyed: closes the values and makes the host wait for work on the
  /// communication streams that uses the group's memory. Ignores failures that were already
  /// reported.
  void finish(CommContext& comm) noexcept;
  /// Throws StateError naming the first parameter whose local() was written after its value was
  /// gathered for forward.
  void check_not_stale() const;
  /// Throws StateError naming the first parameter whose shard is not on the expected device.
  void check_places() const;

  /// `listener` is called at the first gradient after each reduction.
  void on_gradient(const std::function<void()>& listener);
  /// `listener` is called before parameters are converted. It reshards, or throws.
  void on_conversion(std::function<void()> listener) { before_conversion_ = std::move(listener); }
  /// The query returns whether the tree is between steps. Unset: it is.
  void set_idle_query(std::function<bool()> query) { idle_query_ = std::move(query); }
  bool is_idle() const { return !idle_query_ || idle_query_(); }
  /// Records that gathers issued from now on run after compute's writes into the shards so far.
  void note_writes_ordered();
  /// Called when a backward pass begins.
  void begin_pass();
  /// True if gradients wait to be reduced and every parameter that has one has received all of it
  /// in this pass.
  bool ready_to_reduce() const;
  /// Reduces the collected gradients into grad() of the shards, averaged, on the communication
  /// streams. No-op if there are none. Then runs the parameters' post-accumulate hooks.
  void reduce(CommContext& comm);
  /// Makes gradients of parameters that no rank used undefined. Call it after compute waited for
  /// the reductions.
  void drop_unused_gradients(CommContext& comm);
  void discard_pending_gradients(CommContext& comm);
  /// The same, for when no reduction is in flight.
  void drop_pending_gradients();

 private:
  ParamGroup(const GroupRequest& request, const FullyShardOptions& options);
  void lay_out();
  void check_not_shown_whole() const;
  void watch_local_gradients();
  void run_hooks(CommContext& comm, const std::vector<nn::Parameter>& reduced);

  std::string name_;
  GroupSettings settings_;
  GroupLayout layout_;
  KeptPart kept_;
  Gather gather_;
  ReductionState reductions_;
  GroupState state_ = GroupState::kSharded;
  std::function<void()> before_conversion_;
  std::function<bool()> idle_query_;
  std::function<void()> listener_;  ///< of the first gradient after each reduce
  bool watches_local_gradients_ = false;
  int shown_whole_ = 0;  ///< FullParameters guards that hold the group
};

}  // namespace tessera::fsdp
