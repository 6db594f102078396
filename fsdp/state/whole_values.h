#pragma once

/// Conversion between a rank's part of a parameter and the full tensor. A part has the shape of
/// local(): local() itself, its gradient, or an optimizer state.
///
/// There are two full tensors. One has the shape of value(), which this rank computes with; for a
/// tensor-parallel parameter that is this rank's shard. The other is the parameter over all ranks,
/// of spec().global_shape.

#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/nn/parameter.h"

namespace tessera::fsdp {

/// Collectives over all ranks of a mesh, built from the groups along its axes. They start or end at
/// the mesh's first rank. Every call is collective over the mesh.
class MeshRanks {
 public:
  /// An undefined mesh means this rank alone.
  explicit MeshRanks(distributed::DeviceMesh mesh) : mesh_(std::move(mesh)) {
    if (mesh_.defined()) axes_ = mesh_.axes();
  }
  /// Only the ranks that have this rank's coordinates on the other axes. `axes` is in mesh order.
  MeshRanks(distributed::DeviceMesh mesh, std::vector<std::string> axes)
      : mesh_(std::move(mesh)), axes_(std::move(axes)) {}

  /// True at coordinate 0 of every axis.
  bool is_first() const;
  /// Overwrites `tensors` with those of the first rank. They are contiguous and of one dtype. Each
  /// rank receives once.
  void broadcast(std::span<const Tensor> tensors, const std::string& label) const;
  /// Returns the first rank's list on every rank.
  std::vector<std::string> broadcast_texts(const std::vector<std::string>& texts) const;
  /// Returns every rank's list on every rank, in the same order everywhere.
  std::vector<std::vector<std::string>> all_gather_texts(
      const std::vector<std::string>& texts) const;

 private:
  bool sends_along(std::size_t axis) const;

  distributed::DeviceMesh mesh_;
  std::vector<std::string> axes_;
};

/// The mesh with the most ranks among those of the parameters; undefined if nothing is sharded.
distributed::DeviceMesh widest_mesh(std::span<const nn::Parameter> parameters);

/// The mesh of a collective load: `given`, or the widest one. Throws InvalidArgument tagged `where`
/// if there is neither.
distributed::DeviceMesh mesh_of_load(const distributed::DeviceMesh& given,
                                     std::span<const nn::Parameter> parameters, const char* where);

/// The axes of the parameter's mesh along which value() is equal: those over which data parallelism
/// shards or replicates it. Empty for a parameter that is not sharded.
std::vector<std::string> value_axes(const nn::Parameter& parameter);

/// The full tensor of value()'s shape, in memory of its own. Collective over the parameter's mesh,
/// as is gather_whole().
Tensor gather_value(const nn::Parameter& parameter, const Tensor& part);
/// This rank's part of it: a view.
Tensor part_of_value(const nn::Parameter& parameter, const Tensor& value);

/// The full tensor of the global shape, in memory of its own.
Tensor gather_whole(const nn::Parameter& parameter, const Tensor& part);
/// Copies this rank's part of `whole` (of any dtype and device) into `part`.
void copy_from_whole(const nn::Parameter& parameter, const Tensor& part, const Tensor& whole);

}  // namespace tessera::fsdp
