#include "tessera/tests/support/fsdp/whole_twin.h"

#include <span>
#include <utility>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {

std::vector<Variable> cast_floating(const std::vector<Variable>& input, DType dtype) {
  std::vector<Variable> out;
  for (const Variable& x : input)
    out.push_back(is_floating(x.dtype()) && x.dtype() != dtype ? cast(x, dtype) : x);
  return out;
}

WholeTwin::WholeTwin(std::unique_ptr<TestModel> stored, std::unique_ptr<TestModel> computing,
                     WholeTwinOptions options)
    : stored_(std::move(stored)), computing_(std::move(computing)), options_(std::move(options)) {}

Variable WholeTwin::loss(const std::vector<Variable>& input) {
  if (computing_) nn::copy_state(root(), computing_->root());
  const DType dtype = model().root().parameters().front().dtype();
  const std::vector<Variable> mine = cast_floating(input, dtype);
  Variable output = model().call(mine);
  if (options_.output_dtype) output = cast(output, *options_.output_dtype);
  return model().get_loss(mine, output);
}

void WholeTwin::run_backward(const Variable& loss) {
  model().run_backward(loss);
  reduce_gradients();
}

void WholeTwin::reduce_gradients() {
  const std::vector<nn::Parameter> from = model().root().parameters();
  std::vector<nn::Parameter> to = root().parameters();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Tensor grad = from[i].grad();
    if (!grad.defined()) continue;
    const Tensor sum = cast(grad, options_.reduce_dtype.value_or(grad.dtype()));
    if (!options_.reduces_by_itself) {
      distributed::all_reduce(*options_.group, std::span(&sum, 1), distributed::ReduceOp::kSum,
                              "twin");
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

}  // namespace tessera::testing
