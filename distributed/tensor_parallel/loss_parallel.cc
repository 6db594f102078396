#include "tessera/distributed/tensor_parallel/loss_parallel.h"

#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {

Variable parallel_cross_entropy(const Variable& logits, const Tensor& targets,
                                const DeviceMesh& mesh, const LossParallelOptions& options) {
  TESSERA_CHECK(mesh.ndim() == 1, "distributed.parallel_cross_entropy",
                "the mesh has axes {}; choose one: mesh[\"{}\"]", fmt::join(mesh.axes(), ", "),
                mesh.axes().back());
  return nn::parallel_cross_entropy(logits, targets, make_mesh(mesh), mesh.axes().front(), options);
}

}  // namespace tessera::distributed
