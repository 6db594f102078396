#include "tessera/tests/support/fsdp/reference_training.h"

#include <optional>
#include <span>
#include <utility>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/state/full_parameters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {

std::vector<Variable> cast_floating(const std::vector<Variable>& input, DType dtype) {
  std::vector<Variable> out;
  for (const Variable& x : input)
    out.push_back(is_floating(x.dtype()) && x.dtype() != dtype ? cast(x, dtype) : x);
  return out;
}

UnshardedReference::UnshardedReference(std::unique_ptr<TestModel> stored,
                                       std::unique_ptr<TestModel> computing,
                                       UnshardedReferenceOptions options)
    : stored_(std::move(stored)), computing_(std::move(computing)), options_(std::move(options)) {}

Variable UnshardedReference::loss(const std::vector<Variable>& input) {
  if (computing_) nn::copy_state(root(), computing_->root());
  const DType dtype = model().root().parameters().front().dtype();
  const std::vector<Variable> mine = cast_floating(input, dtype);
  Variable output = model().call(mine);
  if (options_.output_dtype) output = cast(output, *options_.output_dtype);
  return model().get_loss(mine, output);
}

void UnshardedReference::run_backward(const Variable& loss) {
  model().run_backward(loss);
  reduce_gradients();
}

void UnshardedReference::reduce_gradients() {
  const std::vector<nn::Parameter> from = model().root().parameters();
  std::vector<nn::Parameter> to = root().parameters();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Tensor grad = from[i].grad();
    if (!grad.defined()) continue;
    const Tensor sum = cast(grad, options_.reduce_dtype.value_or(grad.dtype()));
    if (!options_.reduces_by_itself) {
      distributed::all_reduce(*options_.group, std::span(&sum, 1), distributed::ReduceOp::kSum,
                              "reference");
    }
    const Tensor mean = cast(sum, to[i].dtype());
    if (!options_.reduces_by_itself) mul_(mean, 1.0 / options_.group->size());
    // A second backward in one step adds its gradient.
    const Tensor before = to[i].grad();
    if (computing_ && before.defined()) {
      add_(before, mean);
    } else {
      to[i].set_grad(mean);
    }
    if (computing_) nn::Parameter(from[i]).zero_grad();
  }
}

void zero_model(nn::Module& model, const ZeroModelOptions& options) {
  if (options.summon_full) {
    fsdp::FullParameters full(model);
    for (const nn::Parameter& parameter : model.parameters()) zero_(parameter.value().tensor());
    full.close();
  } else {
    for (const nn::Parameter& parameter : model.parameters()) zero_(parameter.local().tensor());
  }
  if (!options.zero_buffers) return;
  for (const nn::NamedBuffer& named : model.named_buffers()) zero_(named.buffer.tensor());
}

std::vector<Tensor> get_full_params(nn::Module& model, const FullParamsOptions& options) {
  fsdp::FullParameters full(model, {.recurse = options.recurse, .writeback = false});
  std::vector<Tensor> out;
  for (const nn::Parameter& parameter : model.parameters()) {
    if (parameter.state() == nn::ParameterState::kFull)
      out.push_back(clone(parameter.value().tensor()));
  }
  full.close();
  return out;
}

}  // namespace tessera::testing
