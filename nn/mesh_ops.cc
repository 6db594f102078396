#include "tessera/nn/mesh_ops.h"

#include <functional>
#include <span>
#include <utility>

#include "tessera/autograd/function.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops.h"

namespace tessera::nn {
namespace {

using MeshHandle = std::shared_ptr<const Mesh>;

const Mesh& checked(const char* name, const MeshHandle& mesh) {
  TESSERA_CHECK(mesh != nullptr, name, "the mesh is null; pass local_mesh() for one rank alone");
  return *mesh;
}

// Records y = collective of x. Where no gradient of y arrives the derivative still runs, with
// zeros: the other ranks wait for this one.
Variable record_collective(const char* name, const Variable& x, const Tensor& y,
                           std::function<Variable(const Variable&)> derivative) {
  const auto backward = [shape = y.shape(), options = y.options(),
                         derivative = std::move(derivative)](const Gradients& dy,
                                                             const BackwardContext&) {
    return Gradients{derivative(dy[0].defined() ? dy[0] : Variable(zeros(shape, options)))};
  };
  return record_differentiable(name, {y}, std::span(&x, 1), backward)[0];
}

Tensor reduced(const Variable& x, const Mesh& mesh, const std::string& axis) {
  const Tensor y = clone(x.tensor());
  mesh.all_reduce(y, axis, MeshReduce::kSum);
  return y;
}

}  // namespace

Variable all_reduce(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.all_reduce";
  const Tensor y = reduced(x, checked(kName, mesh), axis);
  return record_collective(kName, x, y,
                           [mesh, axis](const Variable& dy) { return all_reduce(dy, mesh, axis); });
}

Variable all_gather(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.all_gather";
  const Tensor y = checked(kName, mesh).all_gather(contiguous(x.tensor()), axis);
  return record_collective(
      kName, x, y, [mesh, axis](const Variable& dy) { return reduce_scatter(dy, mesh, axis); });
}

Variable reduce_scatter(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.reduce_scatter";
  const Tensor y = checked(kName, mesh).reduce_scatter(contiguous(x.tensor()), axis);
  return record_collective(kName, x, y,
                           [mesh, axis](const Variable& dy) { return all_gather(dy, mesh, axis); });
}

Variable all_to_all(const Variable& x, const MeshHandle& mesh, const std::string& axis,
                    const RowCounts& rows) {
  constexpr const char* kName = "nn.all_to_all";
  const Tensor y = checked(kName, mesh).all_to_all(contiguous(x.tensor()), axis, rows);
  const RowCounts back{.sent = rows.received, .received = rows.sent};
  return record_collective(kName, x, y, [mesh, axis, back](const Variable& dy) {
    return all_to_all(dy, mesh, axis, back);
  });
}

Variable all_to_all(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.all_to_all";
  return all_to_all(x, mesh, axis, checked(kName, mesh).equal_rows(x.tensor(), axis));
}

Variable copy_to_ranks(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.copy_to_ranks";
  checked(kName, mesh).size(axis);  // an unknown axis is an error here, not in backward
  return record_collective(kName, x, x.tensor(), [mesh, axis](const Variable& dy) {
    return reduce_from_ranks(dy, mesh, axis);
  });
}

Variable reduce_from_ranks(const Variable& x, const MeshHandle& mesh, const std::string& axis) {
  constexpr const char* kName = "nn.reduce_from_ranks";
  const Tensor y = reduced(x, checked(kName, mesh), axis);
  return record_collective(
      kName, x, y, [mesh, axis](const Variable& dy) { return copy_to_ranks(dy, mesh, axis); });
}

}  // namespace tessera::nn
