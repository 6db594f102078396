#include "tessera/tests/support/parameter_grad_check.h"

#include <vector>

#include "tessera/autograd/custom_function.h"
#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera::testing {
namespace {

// The loss as a function of its inputs, which it puts into the parameters.
class LossOf final : public Function {
 public:
  LossOf(const std::vector<nn::Parameter>& parameters, const std::function<Variable()>& loss)
      : parameters_(parameters), loss_(loss) {}
  const char* name() const override { return "loss_of_parameters"; }

  std::vector<Variable> forward(FunctionContext& context,
                                const std::vector<Variable>& values) override {
    context.save_for_backward(values);
    put(values);
    return {loss_()};
  }

  Gradients backward(FunctionContext& context, const Gradients& dy) override {
    put(context.saved_variables());
    const GradModeGuard recording(true);
    const std::vector<Variable> losses{loss_()};
    std::vector<Variable> leaves;
    for (const nn::Parameter& parameter : parameters_) leaves.push_back(parameter.value());
    Gradients out = grad(losses, leaves);
    for (Variable& gradient : out) {
      if (gradient.defined()) gradient = mul(gradient.detach(), dy[0]);
    }
    return out;
  }

 private:
  void put(const std::vector<Variable>& values) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      copy_(parameters_[i].local().tensor(), values[i].tensor());
    }
  }

  const std::vector<nn::Parameter>& parameters_;
  const std::function<Variable()>& loss_;
};

}  // namespace

GradCheckResult parameter_grad_check(nn::Module& model, const std::function<Variable()>& loss,
                                     const GradCheckOptions& options) {
  std::vector<nn::Parameter> parameters;
  std::vector<Variable> values;
  for (const nn::Parameter& parameter : model.parameters()) {
    if (!parameter.requires_grad()) continue;
    parameters.push_back(parameter);
    values.emplace_back(clone(parameter.local().tensor()), true);
  }
  const auto function = [&](const std::vector<Variable>& inputs) {
    return apply<LossOf>(inputs, parameters, loss)[0];
  };
  const GradCheckResult result = grad_check(function, values, options);
  for (std::size_t i = 0; i < values.size(); ++i) {
    copy_(parameters[i].local().tensor(), values[i].tensor());
  }
  return result;
}

}  // namespace tessera::testing
