#include "tessera/tests/support/models/mixture_of_experts.h"

#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {
namespace {
constexpr const char* kAxis = "data";
}

MixtureOfExperts::MixtureOfExperts(const MixtureOfExpertsOptions& options)
    : NestedModel(options.dtype), mesh_(options.mesh) {
  module_.add<nn::Linear>(linear(8, 12));
  shared_ = &module_.add<nn::Linear>(linear(12, 23));
  expert_ = &module_.add<nn::Linear>(linear(23, 12));
  module_.add<nn::Linear>(linear(12, 8));
  for (nn::Parameter& parameter : expert_->parameters()) {
    parameter.add_tag("expert");
    num_expert_params_ += parameter.shape().numel();
  }
}

void MixtureOfExperts::initialize(const nn::InitializeOptions& options) {
  NestedModel::initialize(options);
  nn::reinitialize(*expert_, options.seed + 42 + static_cast<std::uint64_t>(mesh_->rank(kAxis)));
}

void MixtureOfExperts::run_backward(const Variable& loss) {
  backward(loss);
  average_gradients();
}

void MixtureOfExperts::average_gradients() {
  for (const nn::Parameter& parameter : parameters()) {
    const Tensor grad = parameter.grad();
    if (parameter.has_tag("expert") || parameter.owner() != nullptr || !grad.defined()) continue;
    div_(grad, mesh_->size(kAxis));
    mesh_->all_reduce(grad, kAxis, nn::MeshReduce::kSum);
  }
}

}  // namespace tessera::testing
