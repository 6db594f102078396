#include "tessera/distributed/parameters/mesh_impl.h"

#include <algorithm>
#include <span>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

ReduceOp reduce_op(nn::MeshReduce op) {
  switch (op) {
    case nn::MeshReduce::kSum:
      return ReduceOp::kSum;
    case nn::MeshReduce::kMax:
      return ReduceOp::kMax;
  }
  return ReduceOp::kSum;
}

class GroupMesh final : public nn::Mesh {
 public:
  explicit GroupMesh(DeviceMesh mesh) : mesh_(std::move(mesh)) {}
  const DeviceMesh& device_mesh() const { return mesh_; }

  const std::vector<std::string>& axes() const override { return mesh_.axes(); }
  int size(const std::string& axis) const override { return mesh_.size(axis); }
  int rank(const std::string& axis) const override { return mesh_.coordinate(axis); }
  const void* line(const std::string& axis) const override { return mesh_.group(axis).get(); }

  void all_reduce(const Tensor& tensor, const std::string& axis, nn::MeshReduce op) const override {
    distributed::all_reduce(*mesh_.group(axis), std::span(&tensor, 1), reduce_op(op),
                            "mesh " + axis);
  }

  Tensor all_gather(const Tensor& tensor, const std::string& axis) const override {
    TESSERA_CHECK(tensor.ndim() >= 1, "all_gather",
                  "a 0-d tensor has no dim 0 to concatenate along; view it as [1]");
    const Tensor whole =
        Tensor::empty(tensor.shape().with(0, tensor.dim(0) * size(axis)), tensor.options());
    distributed::all_gather(*mesh_.group(axis), std::span(&tensor, 1), std::span(&whole, 1),
                            "mesh " + axis);
    return whole;
  }

  Tensor reduce_scatter(const Tensor& tensor, const std::string& axis) const override {
    const std::int64_t ranks = size(axis);
    TESSERA_CHECK(tensor.ndim() >= 1 && tensor.dim(0) % ranks == 0, "reduce_scatter",
                  "a tensor of shape {} has no {} equal parts along dim 0; pad it",
                  tensor.shape().str(), ranks);
    const Tensor part =
        Tensor::empty(tensor.shape().with(0, tensor.dim(0) / ranks), tensor.options());
    distributed::reduce_scatter(*mesh_.group(axis), std::span(&tensor, 1), std::span(&part, 1),
                                ReduceOp::kSum, "mesh " + axis);
    return part;
  }

  using nn::Mesh::all_to_all;
  Tensor all_to_all(const Tensor& tensor, const std::string& axis,
                    const nn::RowCounts& rows) const override {
    TESSERA_CHECK(tensor.ndim() >= 1, "all_to_all",
                  "a 0-d tensor has no dim 0 to exchange; view it as [1]");
    std::int64_t received = 0;
    for (const std::int64_t count : rows.received) received += std::max<std::int64_t>(count, 0);
    const Tensor out = Tensor::empty(tensor.shape().with(0, received), tensor.options());
    distributed::all_to_all(*mesh_.group(axis), std::span(&tensor, 1), std::span(&out, 1),
                            {.sent = rows.sent, .received = rows.received}, "mesh " + axis);
    return out;
  }

 private:
  DeviceMesh mesh_;
};

}  // namespace

std::shared_ptr<const nn::Mesh> make_mesh(const DeviceMesh& mesh) {
  TESSERA_CHECK(mesh.defined(), "make_mesh", "the mesh is undefined; use World::mesh()");
  if (const auto known = mesh.companion().lock())
    return std::static_pointer_cast<const GroupMesh>(known);
  auto made = std::make_shared<const GroupMesh>(mesh);
  mesh.companion() = made;
  return made;
}

DeviceMesh device_mesh_of(const nn::Mesh& mesh) {
  const auto* over_groups = dynamic_cast<const GroupMesh*>(&mesh);
  return over_groups == nullptr ? DeviceMesh() : over_groups->device_mesh();
}

}  // namespace tessera::distributed
