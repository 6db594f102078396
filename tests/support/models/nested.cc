#include "tessera/tests/support/models/nested.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/freeze.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random.h"

namespace tessera::testing {

NestedModel::NestedModel(DType dtype) : dtype_(dtype) { register_module("module", module_); }

std::vector<Variable> NestedModel::get_input(Device device, int rank) const {
  const Tensor x = Tensor::empty({4, 8}, {.dtype = dtype_, .device = device});
  const auto seed = static_cast<std::uint64_t>(1 + rank);
  random::fill_uniform(x, random::named_key(seed, "input"), random::whole(x.shape()), 0, 1);
  return {Variable(x)};
}

Variable NestedModel::call(const std::vector<Variable>& input) { return (*this)(input.at(0)); }

Variable NestedModel::get_loss(const std::vector<Variable>&, const Variable& output) {
  return sum(output);
}

NestedWrappedModule::NestedWrappedModule(const NestedOptions& options)
    : NestedModel(options.dtype) {
  module_.add<nn::Linear>(linear(8, 4));
  auto& inner = module_.add<nn::Sequential>();
  inner.add<nn::Linear>(linear(4, 16));
  inner.add<nn::Linear>(linear(16, 16));
  module_.add<nn::Linear>(linear(16, 4));
  module_.add<nn::Linear>(linear(4, 8));
}

std::vector<nn::Module*> NestedWrappedModule::groups() {
  return {&get_submodule("module.1.0"), &get_submodule("module.1"), &get_submodule("module.2")};
}

std::vector<nn::Module*> AlwaysWrapNestedWrappedModule::groups() {
  std::vector<nn::Module*> out;
  apply([&out](nn::Module& module) {
    if (!module.is_container()) out.push_back(&module);
  });
  return out;
}

NonUniformReqGradNWM::NonUniformReqGradNWM(const NonUniformOptions& options)
    : NestedModel(options.dtype) {
  module_.add<nn::Linear>(linear(8, 4));
  auto& inner = module_.add<nn::Sequential>();
  inner.add<nn::Linear>(linear(4, 16));
  inner.add<nn::Linear>(linear(16, 16));
  auto& last = module_.add<nn::Sequential>();
  last.add<nn::Linear>(linear(16, 4));
  last.add<nn::Linear>(linear(4, options.last_rows));
  nn::freeze(*this, "**");
  nn::unfreeze(*this, "module.2.1.*");
}

std::vector<nn::Module*> NonUniformReqGradNWM::groups() {
  return {&get_submodule("module.1.0"), &get_submodule("module.1"), &get_submodule("module.2")};
}

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
