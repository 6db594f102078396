#pragma once

/// The ranks of a whole mesh, spoken to through the groups along its axes: for work that begins or
/// ends on the first of them. Collective over the mesh throughout.

#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/parameter.h"

namespace tessera::fsdp {

class MeshRanks {
 public:
  /// Of an undefined mesh, this rank alone.
  explicit MeshRanks(distributed::DeviceMesh mesh) : mesh_(std::move(mesh)) {
    if (mesh_.defined()) axes_ = mesh_.axes();
  }
  /// Only those that agree with this rank along the other axes. `axes` in the mesh's order.
  MeshRanks(distributed::DeviceMesh mesh, std::vector<std::string> axes)
      : mesh_(std::move(mesh)), axes_(std::move(axes)) {}

  /// Of coordinate 0 along every axis.
  bool is_first() const;
  /// In place: the tensors of the first rank. Contiguous, of one dtype. Each rank receives once.
  void broadcast(std::span<const Tensor> tensors, const std::string& label) const;
  /// The first rank's list, on every rank.
  std::vector<std::string> broadcast_texts(const std::vector<std::string>& texts) const;
  /// Every rank's list, on every rank, in one order.
  std::vector<std::vector<std::string>> all_gather_texts(
      const std::vector<std::string>& texts) const;

 private:
  bool sends_along(std::size_t axis) const;

  distributed::DeviceMesh mesh_;
  std::vector<std::string> axes_;
};

/// The mesh of most ranks among those of the parameters; undefined where nothing is sharded.
distributed::DeviceMesh widest_mesh(std::span<const nn::Parameter> parameters);

/// The mesh of those that load together: the one given, or the widest. Throws InvalidArgument
/// tagged `where` where neither is there.
distributed::DeviceMesh mesh_of_load(const distributed::DeviceMesh& given,
                                     std::span<const nn::Parameter> parameters, const char* where);

}  // namespace tessera::fsdp
