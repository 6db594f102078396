#pragma once

/// Collectives over all ranks of a mesh, built from the groups along its axes. They start or end at
/// the mesh's first rank. Every call is collective over the mesh.

#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/parameter.h"

namespace tessera::fsdp {

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

}  // namespace tessera::fsdp
