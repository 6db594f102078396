#pragma once

/// The parameters of one fully_shard or replicate call: gathered together, released together,
/// reduced together.
///
/// One storage holds all gathered values, parameter by parameter, each on a 256-byte boundary with
/// its padding rows at its tail, so a gather writes every rank's rows straight into place: no copy
/// in, no copy out.

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

/// A parameter that a call found below its modules.
struct ManagedParameter {
  nn::Parameter parameter;
  std::string name;     ///< from the call's module
  bool exempt = false;  ///< from mixed precision
};

struct GroupRequest {
  std::string name;
  Kind kind = Kind::kFullyShard;
  std::vector<ManagedParameter> parameters;
};

/// What the setters of Handle change in a group.
struct GroupSettings {
  std::optional<double> divide_factor = {};
  AllReduceHook all_reduce_hook = {};
  std::optional<Stream> hook_stream = {};
  CustomCollective all_gather = {};
  CustomCollective reduce_scatter = {};
  bool all_reduce = true;  ///< false: replicas are left out until it is true again
  bool zeros_for_unused = false;
  std::shared_ptr<distributed::ProcessGroup> reduce_group = {};  ///< instead of the shard axis' own
};

/// Parameters that took part in a reduction, perhaps with zeros, and how many ranks used each.
struct UseCount {
  std::vector<nn::Parameter> parameters;
  Tensor ranks;
};

class ParamGroup final : public nn::ParameterOwner,
                         public std::enable_shared_from_this<ParamGroup> {
 public:
  /// Lays out and takes over the parameters; throws as fully_shard.
  static std::shared_ptr<ParamGroup> create(GroupRequest request, const FullyShardOptions& options);

  /// Graphs that still need the gathered values are told that the module is gone.
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
  bool is_trained() const;  ///< any of its parameters needs a gradient
  /// Gathered memory is held: it counts against the bound on buffers.
  bool occupies_memory() const {
    return (state_ == GroupState::kGathering || state_ == GroupState::kFull) &&
           gathered_.bytes() > 0;
  }
  /// Bytes of the gathered memory, alignment and padding rows included.
  std::int64_t gathered_bytes() const { return static_cast<std::int64_t>(gathered_.bytes()); }
  std::int64_t accumulated_bytes() const;

  /// Issues the gather on the gather stream; no-op when gathered. `room`: how many buffers may be
  /// there beside this one, and how many other groups have (README.md).
  void unshard(CommContext& comm, const GatherRoom& room);
  /// Makes compute wait for the gather and opens the values; no-op when full, and again when
  /// local() changed since.
  void wait_for_unshard(CommContext& comm, const GatherRoom& room);
  /// Closes the values and parks their memory; no-op when sharded.
  void reshard(CommContext& comm);
  /// Compute waits until no rank reads the shards for a gather, also for one that was dropped.
  void wait_for_readers(CommContext& comm) const;
  /// The same, but 1/n of the values stays where the options say so (ReshardAfterForward of a
  /// number); no-op unless full.
  void reshard_to_part(CommContext& comm);
  /// Lets go of what is kept between the gathers of one step (chunks gathered among replicas).
  void end_step(CommContext& comm);
  /// Parameters are shown whole by somebody else (FullParameters), once more or once less: as long
  /// as there are any, the group is not to run. Its next gather or use throws StateError.
  void note_shown_whole(int change) { shown_whole_ += change; }
  /// The module goes: closes the values and waits, on the host, for what still reads or writes the
  /// group's memory on the communication streams. Swallows failures that were reported before.
  void finish(CommContext& comm) noexcept;
  /// Throws StateError naming the first parameter whose local() was written after its value was
  /// gathered for forward.
  void check_not_stale() const;
  /// Throws StateError naming parameters that are not where the group wants them.
  void check_places() const;

  /// Called at the first gradient after each reduce.
  void on_gradient(const std::function<void()>& listener);
  /// Called before parameters are converted: reshards, or throws.
  void on_conversion(std::function<void()> listener) { before_conversion_ = std::move(listener); }
  /// Whether the modules' tree is between steps; unset: it is.
  void set_idle_query(std::function<bool()> query) { idle_query_ = std::move(query); }
  bool is_idle() const { return !idle_query_ || idle_query_(); }
  /// Gathers issued from now on are ordered after what compute wrote into the shards so far.
  void note_writes_ordered();
  /// A backward pass begins.
  void begin_pass();
  /// Something waits to be reduced, and every parameter that got a gradient got all of it in this
  /// pass.
  bool ready_to_reduce() const;
  /// Reduces what was collected into the shards' gradients, averaged, on the communication streams;
  /// no-op when nothing was. Then runs the parameters' post-accumulate hooks.
  void reduce(CommContext& comm);
  /// Gradients of parameters that no rank used become undefined; after compute waited for reduces.
  void drop_unused_gradients(CommContext& comm);
  void discard_pending_gradients(CommContext& comm);
  /// The same once nothing is in flight any more.
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
  /// A reduction counted who used the parameter, and the count was not read yet.
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
  int kept_ranks_ = 0;  ///< 0: no part is ever kept
  std::shared_ptr<distributed::ProcessGroup> kept_group_;
  GroupSettings settings_;
  std::vector<ShardedParameter> parameters_;
  Storage gathered_;
  std::vector<Tensor> kept_;    ///< 1/n of each gathered parameter
  std::vector<Tensor> chunks_;  ///< of groups cut twice: of each parameter, what replicas gathered
  GroupState state_ = GroupState::kSharded;
  Event gather_done_;
  Event kept_done_;
  Event reduce_done_;
  Stream reduced_on_;  ///< of the last reduction that wrote grad()
  std::vector<UseCount> use_counts_;
  std::set<const void*> used_before_;  ///< here, by parameters whose all-reduce was put off
  std::function<void()> before_conversion_;
  std::function<bool()> idle_query_;
  std::function<void()> listener_;
  bool watches_local_gradients_ = false;
  int shown_whole_ = 0;
};

}  // namespace tessera::fsdp
