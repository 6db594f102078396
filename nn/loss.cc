#include "tessera/nn/loss.h"

#include "tessera/autograd/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops.h"

namespace tessera::nn {

Variable global_mean(const Variable& loss_sum, std::int64_t local_count, const Mesh& mesh,
                     const std::string& axis) {
  TESSERA_CHECK(loss_sum.numel() == 1, "nn.global_mean",
                "expected a loss of one element, got shape {}: sum it first",
                loss_sum.shape().str());
  TESSERA_CHECK(local_count >= 0, "nn.global_mean", "local_count is {}", local_count);
  const TensorOptions options{.dtype = DType::kF64, .device = loss_sum.device()};
  const Tensor count = full({}, static_cast<double>(local_count), options);
  mesh.all_reduce(count, axis, MeshReduce::kSum);
  // Divided in f64 and rounded once; the count never comes to the host.
  const Tensor scale = div(full({}, mesh.size(axis), options), count);
  return mul(loss_sum, Variable(cast(scale, loss_sum.dtype())));
}

}  // namespace tessera::nn
