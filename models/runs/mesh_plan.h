#pragma once

/// How the ranks of a run are arranged: which share a batch, and which share a layer.

#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/models/runs/train_options.h"

namespace tessera::models::runs {

struct MeshPlan {
  int replicas = 1;         ///< groups that replicate each other: --shard hybrid
  int shards = 1;           ///< ranks of a group
  int tensor_parallel = 1;  ///< ranks that share every layer
  bool hybrid = false;

  int data_ranks() const { return replicas * shards; }
  std::string str() const;  ///< "2 x 4, tensor parallel 2"
};

/// What is wrong with the text of --mesh, or nothing.
std::string mesh_problem(const std::string& text);

/// Throws OptionError for a tensor_parallel below 1, a mesh that mesh_problem() refuses, and one that
/// does not have as many ranks as the run, or not the axes that the sharding mode needs.
MeshPlan plan_mesh(const TrainOptions& options);

/// The meshes of the plan. Collective (see DeviceMesh).
struct RunMeshes {
  distributed::DeviceMesh shard;   ///< for parallelize: one axis, or two for hybrid
  distributed::DeviceMesh data;    ///< ranks that share a batch: one axis
  distributed::DeviceMesh tensor;  ///< undefined without tensor parallelism
};
RunMeshes make_meshes(const distributed::World& world, const MeshPlan& plan);

}  // namespace tessera::models::runs
