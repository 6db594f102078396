#include "tessera/distributed/mesh_impl.h"

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

  const std::vector<std::string>& axes() const override { return mesh_.axes(); }
  int size(const std::string& axis) const override { return mesh_.size(axis); }
  int rank(const std::string& axis) const override { return mesh_.coordinate(axis); }

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

}  // namespace tessera::distributed
