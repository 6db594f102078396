#pragma once

/// The parameters of one fully_shard call: gathered together, released together, reduced together.
///
/// One storage holds all gathered values, parameter by parameter, each on a 256-byte boundary with
/// its padding rows at its tail, so a gather writes every rank's rows straight into place: no copy
/// in, no copy out.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/comm_context.h"
#include "tessera/fsdp/sharded_parameter.h"

namespace tessera::fsdp {

/// Where a group's gathered value stands.
enum class GroupState : std::uint8_t {
  kSharded,    ///< no gathered memory
  kGathering,  ///< a gather was issued; nobody has waited for it
  kFull,       ///< values can be read
};

class ParamGroup final : public nn::ParameterOwner,
                         public std::enable_shared_from_this<ParamGroup> {
 public:
  /// Lays out and takes over `parameters`; throws as fully_shard.
  static std::shared_ptr<ParamGroup> create(std::string name, std::vector<nn::Parameter> parameters,
                                            const distributed::DeviceMesh& mesh);

  std::string group_name() const override { return name_; }
  bool has_pending_gradients() const override;
  void set_name(std::string name) { name_ = std::move(name); }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  GroupState state() const { return state_; }
  /// Gathered memory is held: it counts against the bound on buffers.
  bool occupies_memory() const { return state_ != GroupState::kSharded && gathered_.bytes() > 0; }
  /// Bytes of the gathered memory, alignment and padding rows included.
  std::int64_t gathered_bytes() const { return static_cast<std::int64_t>(gathered_.bytes()); }

  /// Issues the gather on the gather stream; no-op unless sharded. `live`: buffers of other groups
  /// that count (README.md).
  void unshard(CommContext& comm, int live);
  /// Makes compute wait for the gather and opens the values; no-op when full, and again when
  /// local() changed since.
  void wait_for_unshard(CommContext& comm, int live);
  /// Closes the values and parks their memory; no-op when sharded.
  void reshard(CommContext& comm);
  /// The module goes: closes the values and waits, on the host, for what still reads or writes the
  /// group's memory on the communication streams. Swallows failures that were reported before.
  void finish(CommContext& comm) noexcept;
  /// Throws StateError naming the first parameter whose local() was written after its value was
  /// gathered for forward.
  void check_not_stale() const;

  /// Called at the first gradient after each reduce.
  void on_gradient(const std::function<void()>& listener);
  /// Gathers issued from now on are ordered after what compute wrote into the shards so far.
  void note_writes_ordered();
  /// A backward pass begins.
  void begin_pass();
  /// Some gradient was collected, and every parameter that got one got all of it in this pass.
  bool ready_to_reduce() const;
  /// Reduce-scatters what was collected into the shards' gradients, averaged, on the reduce stream;
  /// no-op when nothing was.
  void reduce(CommContext& comm);
  void discard_pending_gradients();

 private:
  ParamGroup(std::string name, std::shared_ptr<distributed::ProcessGroup> process_group);
  void lay_out(const distributed::DeviceMesh& mesh);
  void issue_gather(CommContext& comm);
  void watch_local_gradients();
  bool is_stale() const;

  std::string name_;
  std::shared_ptr<distributed::ProcessGroup> process_group_;
  std::vector<ShardedParameter> parameters_;
  Storage gathered_;
  GroupState state_ = GroupState::kSharded;
  Event gather_done_;
  Event reduce_done_;
  bool watches_local_gradients_ = false;
};

}  // namespace tessera::fsdp
