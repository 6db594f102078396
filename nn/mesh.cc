#include "tessera/nn/mesh.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera::nn {
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
