#pragma once

/// The parameters of one fully_shard or replicate call. They are gathered, resharded and reduced
/// together.
///
/// One storage holds all gathered values, one parameter after another, each on a 256-byte boundary
/// with its padding rows at the end. A gather therefore writes every rank's rows to their final
/// place: no copy in, no copy out.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/runtime/comm_context.h"
#include "tessera/fsdp/runtime/sharded_parameter.h"

namespace tessera::fsdp {

/// A parameter below the modules of a call.
struct ManagedParameter {
  nn::Parameter parameter;
  std::string name;     ///< relative to the call's module
  bool exempt = false;  ///< exempt from mixed precision
};

struct GroupRequest {
  std::string name;
  Kind kind = Kind::kFullyShard;
  std::vector<ManagedParameter> parameters;
};

/// The settings of Handle that belong to a group.
struct GroupSettings {
  std::optional<double> divide_factor = {};
  AllReduceHook all_reduce_hook = {};
  std::optional<Stream> hook_stream = {};
  CustomCollective all_gather = {};
  CustomCollective reduce_scatter = {};
  bool all_reduce = true;  ///< false: no reduction over the replica axis until it is true again
  bool zeros_for_unused = false;
  std::shared_ptr<distributed::ProcessGroup> reduce_group = {};  ///< replaces the shard axis' group
};

/// Parameters of one reduction (some with zeros), and the number of ranks that used each of them.
struct UseCount {
  std::vector<nn::Parameter> parameters;
  Tensor ranks;
};

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
  Device compute_device() const override { return mesh_.device(); }
  void set_name(std::string name) { name_ = std::move(name); }
  Kind kind() const { return kind_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  GroupState state() const { return state_; }
  GroupSettings& settings() { return settings_; }
  const GroupSettings& settings() const { return settings_; }
  bool has_shards() const { return shard_axis_.has_value(); }
  bool has_replicas() const { return replica_axis_.has_value(); }
  const std::shared_ptr<distributed::ProcessGroup>& shard_group() const { return shard_group_; }
  int data_parallel_size() const;
  bool needs_zeros() const;
  bool is_trained() const;  ///< true if one of its parameters requires a gradient
  /// Gathered memory is allocated; it counts against the bound on buffers.
  bool occupies_memory() const {
    return (state_ == GroupState::kGathering || state_ == GroupState::kFull) &&
           gathered_.bytes() > 0;
  }
  /// Size of the gathered memory, alignment and padding rows included.
  std::int64_t gathered_bytes() const { return static_cast<std::int64_t>(gathered_.bytes()); }
  std::int64_t accumulated_bytes() const;

  /// Issues the gather on the gather stream; no-op when gathered. `room`: the bound on gathered
  /// buffers and the number that other groups have (fsdp/README.md).
  void unshard(CommContext& comm, const GatherRoom& room);
  /// Makes compute wait for the gather and opens the values. Gathers first if necessary, and again
  /// if local() was written since. No-op when full.
  void wait_for_unshard(CommContext& comm, const GatherRoom& room);
  /// Closes the values and parks their memory. No-op when sharded.
  void reshard(CommContext& comm);
  /// Makes compute wait until no gather reads the shards, including a gather that was dropped.
  void wait_for_readers(CommContext& comm) const;
  /// Like reshard(), but keeps 1/n of the values if ReshardAfterForward(n) says so. No-op unless
  /// full.
  void reshard_to_part(CommContext& comm);
  /// Frees the memory that is kept between the gathers of one step (chunks gathered over replicas).
  void end_step(CommContext& comm);
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
  friend class Reduction;
  ParamGroup(GroupRequest& request, const FullyShardOptions& options);
  void add_parameters(std::vector<ManagedParameter> managed, const FullyShardOptions& options);
  std::shared_ptr<const nn::Mesh> mesh_for(const nn::Parameter& parameter) const;
  void lay_out();
  void keep_up_with_conversions();
  void issue_gather(CommContext& comm);
  void gather_among_replicas(CommContext& comm);
  void gather_payload(CommContext& comm, std::size_t index);
  Tensor what_travels(CommContext& comm, std::size_t index);
  void all_gather(std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                  distributed::ProcessGroup& group) const;
  void watch_local_gradients();
  void run_hooks(CommContext& comm, const std::vector<nn::Parameter>& reduced);
  /// A reduction counted the ranks that used the parameter, and the count was not read yet.
  bool is_use_unknown(const nn::Parameter& parameter) const;
  bool is_stale() const;
  void check_not_shown_whole() const;

  std::string name_;
  Kind kind_;
  distributed::DeviceMesh mesh_;
  std::optional<std::string> shard_axis_, replica_axis_;
  std::shared_ptr<distributed::ProcessGroup> shard_group_, replica_group_;
  std::optional<DType> reduce_dtype_;
  bool keep_reduce_dtype_ = false;
  bool cut_twice_ = false;
  int kept_ranks_ = 0;  ///< ranks that share a kept copy (n of ReshardAfterForward); 0: none is
                        ///< kept
  std::shared_ptr<distributed::ProcessGroup> kept_group_;
  GroupSettings settings_;
  std::vector<ShardedParameter> parameters_;
  Storage gathered_;
  std::vector<Tensor> kept_;    ///< 1/n of each gathered parameter
  std::vector<Tensor> chunks_;  ///< sharded over both axes: each parameter's chunk, as gathered
                                ///< over replicas
  GroupState state_ = GroupState::kSharded;
  Event gather_done_;
  Event kept_done_;
  Event reduce_done_;
  Stream reduced_on_;  ///< stream of the last reduction that wrote grad()
  std::vector<UseCount> use_counts_;
  std::set<const void*> used_before_;  ///< parameters used on this rank whose all-reduce was
                                       ///< postponed
  std::function<void()> before_conversion_;
  std::function<bool()> idle_query_;
  std::function<void()> listener_;
  bool watches_local_gradients_ = false;
  int shown_whole_ = 0;
};

}  // namespace tessera::fsdp
