#pragma once

/// What a group consists of: its parameters, the mesh axes that shard and replicate them, their
/// dtypes, and where each parameter lies in the gathered memory. Fixed by the call that makes the
/// group; only the places in memory change, when the model is converted to another dtype.
///
/// One storage holds all gathered values, one parameter after the other, each on a 256-byte boundary
/// with its padding rows at its end. So an all-gather writes the rows of all ranks directly to where
/// they belong, without a copy before or after.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/options.h"
#include "tessera/fsdp/runtime/sharded_parameter.h"

namespace tessera::fsdp {

/// A parameter below the modules of a call.
struct ManagedParameter {
  nn::Parameter parameter;
  std::string name;     ///< relative to the call's module
  bool exempt = false;  ///< from mixed precision
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
  std::optional<DeviceStream> hook_stream = {};
  CustomCollective all_gather = {};
  CustomCollective reduce_scatter = {};
  bool all_reduce = true;  ///< false: no all-reduce among replicas until it is true again
  bool zeros_for_unused = false;
  std::shared_ptr<distributed::ProcessGroup> reduce_group = {};  ///< instead of shard_group
};

struct GroupLayout {
  /// The mesh axes and dtypes of the group, without parameters. Throws as fully_shard.
  GroupLayout(const GroupRequest& request, const FullyShardOptions& options);

  /// Throws as fully_shard.
  void add_parameters(std::vector<ManagedParameter> managed, const FullyShardOptions& options,
                      const std::string& group);
  /// Makes `owner` the owner of all parameters: from now on local() is this rank's shard.
  void take_over(const std::shared_ptr<nn::ParameterOwner>& owner);
  /// Gives every parameter its place in a new, released storage and a new gradient slot; returns the
  /// storage.
  TensorStorage place_parameters(const std::string& group);
  /// local() of a parameter has another dtype than when place_parameters() was called.
  bool has_converted_parameters() const;

  int data_parallel_size() const;
  bool is_unsharded() const;  ///< this rank stores all rows of all parameters on the device
  bool is_cast() const;       ///< is_unsharded(), and each value is local() or a cast of it
  bool is_trained() const;    ///< any parameter requires a gradient
  bool has_pending_gradients() const;
  /// local() of a parameter was written since its last all-gather.
  bool is_stale() const;

  Kind kind;
  distributed::DeviceMesh mesh;
  std::optional<std::string> shard_axis, replica_axis;
  std::shared_ptr<distributed::ProcessGroup> shard_group, replica_group;  ///< null without the axis
  std::optional<DType> reduce_dtype;
  bool keep_reduce_dtype = false;  ///< grad() keeps the dtype of the reduction
  bool cut_twice = false;          ///< shards are sharded again over the replicas
  std::vector<ShardedParameter> parameters;

 private:
  std::shared_ptr<const nn::Mesh> mesh_for(const nn::Parameter& parameter,
                                           const std::string& group) const;

  std::vector<std::shared_ptr<const nn::Mesh>> meshes_;  // of each parameter, until take_over()
};

}  // namespace tessera::fsdp
