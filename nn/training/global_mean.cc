#include "tessera/nn/training/global_mean.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.global_mean";

}  // namespace

GlobalMean::GlobalMean(std::int64_t local_count, const MeshArgument& mesh, const std::string& axis,
                       Device device) {
  TESSERA_CHECK(local_count >= 0, kWhere, "local_count is {}", local_count);
  const Mesh& ranks = mesh.checked(kWhere);
  const TensorOptions options{.dtype = DType::kF64, .device = device};
  const Tensor count = full({}, static_cast<double>(local_count), options);
  ranks.all_reduce(count, axis, MeshReduce::kSum);
  // Divided in f64 and rounded once; the count never comes to the host.
  scale_ = div(full({}, ranks.size(axis), options), count);
}

Variable GlobalMean::operator()(const Variable& loss_sum) const {
  TESSERA_CHECK(loss_sum.numel() == 1, kWhere,
                "expected a loss of one element, got shape {}: sum it first",
                loss_sum.shape().str());
  return mul(loss_sum, Variable(cast(scale_, loss_sum.dtype())));
}

}  // namespace tessera::nn
