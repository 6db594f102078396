#include "tessera/nn/mesh/mesh.h"

#include <algorithm>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {

// Nothing is known of other meshes: the place of this one's axis.
const void* Mesh::line(const std::string& axis) const {
  const std::vector<std::string>& names = axes();
  const auto found = std::find(names.begin(), names.end(), axis);
  return found == names.end() ? nullptr : &*found;
}

RowCounts Mesh::equal_rows(const Tensor& tensor, const std::string& axis) const {
  const std::int64_t ranks = size(axis);
  TESSERA_CHECK(tensor.ndim() >= 1 && tensor.dim(0) % ranks == 0, "all_to_all",
                "a tensor of shape {} has no {} equal parts along dim 0; pass counts of rows",
                tensor.shape().str(), ranks);
  const std::vector<std::int64_t> equal(static_cast<std::size_t>(ranks), tensor.dim(0) / ranks);
  return {.sent = equal, .received = equal};
}

Tensor Mesh::all_to_all(const Tensor& tensor, const std::string& axis) const {
  return all_to_all(tensor, axis, equal_rows(tensor, axis));
}

const Mesh& MeshArgument::checked(const char* where) const {
  TESSERA_CHECK(mesh_ != nullptr, where, "it needs a mesh: that of a world is world.mesh()");
  return *mesh_;
}

namespace {

class LocalMesh final : public Mesh {
 public:
  const std::vector<std::string>& axes() const override { return axes_; }
  int size(const std::string& axis) const override {
    check_axis(axis);
    return 1;
  }
  int rank(const std::string& axis) const override {
    check_axis(axis);
    return 0;
  }
  void all_reduce(const Tensor&, const std::string& axis, MeshReduce) const override {
    check_axis(axis);
  }
  Tensor all_gather(const Tensor& tensor, const std::string& axis) const override {
    check_axis(axis);
    TESSERA_CHECK(tensor.ndim() >= 1, "nn.local_mesh",
                  "a 0-d tensor has no dim 0 to concatenate along; view it as [1]");
    return clone(tensor);
  }
  Tensor reduce_scatter(const Tensor& tensor, const std::string& axis) const override {
    check_axis(axis);
    TESSERA_CHECK(tensor.ndim() >= 1, "nn.local_mesh",
                  "a 0-d tensor has no dim 0 to divide; view it as [1]");
    return clone(tensor);
  }
  Tensor all_to_all(const Tensor& tensor, const std::string& axis,
                    const RowCounts& rows) const override {
    check_axis(axis);
    const std::vector<std::int64_t> all{tensor.ndim() == 0 ? -1 : tensor.dim(0)};
    TESSERA_CHECK(rows.sent == all && rows.received == all, "nn.local_mesh",
                  "one rank sends all rows of a tensor of shape {} to itself, got counts [{}] and "
                  "[{}]",
                  tensor.shape().str(), fmt::join(rows.sent, ", "), fmt::join(rows.received, ", "));
    return clone(tensor);
  }

 private:
  void check_axis(const std::string& axis) const {
    TESSERA_CHECK(axis == axes_.front(), "nn.local_mesh", "unknown axis \"{}\"; there is \"{}\"",
                  axis, axes_.front());
  }
  const std::vector<std::string> axes_{"data"};
};

}  // namespace

std::shared_ptr<const Mesh> local_mesh() {
  static const std::shared_ptr<const Mesh> mesh = std::make_shared<LocalMesh>();
  return mesh;
}

}  // namespace tessera::nn
