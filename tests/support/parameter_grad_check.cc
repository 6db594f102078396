#include "tessera/tests/support/parameter_grad_check.h"

#include <vector>

#include "tessera/autograd/custom_function.h"
#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {
namespace {

// The result as a function of its inputs, which are written into the parameters.
class ResultOf final : public CustomFunction {
 public:
  ResultOf(const std::vector<nn::Parameter>& parameters, const std::function<Variable()>& result)
      : parameters_(parameters), result_(result) {}
  const char* name() const override { return "result_of_parameters"; }

  std::vector<Variable> forward(FunctionContext& context,
                                const std::vector<Variable>& values) override {
    context.save_for_backward(values);
    put(values);
    return {result_()};
  }

  Gradients backward(FunctionContext& context, const Gradients& dy) override {
    put(context.saved_variables());
    const GradModeGuard recording(true);
    const std::vector<Variable> results{result_()};
    std::vector<Variable> leaves;
    for (const nn::Parameter& parameter : parameters_) leaves.push_back(parameter.value());
    return grad(results, leaves, {.gradient = dy[0].tensor()});
  }

 private:
  void put(const std::vector<Variable>& values) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      copy_(parameters_[i].local().tensor(), values[i].tensor());
    }
  }

  const std::vector<nn::Parameter>& parameters_;
  const std::function<Variable()>& result_;
};

}  // namespace

GradCheckResult parameter_grad_check(const nn::Module& model,
                                     const std::function<Variable()>& result,
                                     const GradCheckOptions& options) {
  std::vector<nn::Parameter> parameters;
  std::vector<Variable> values;
  for (const nn::Parameter& parameter : model.parameters()) {
    if (!parameter.requires_grad()) continue;
    parameters.push_back(parameter);
    values.emplace_back(clone(parameter.local().tensor()), true);
  }
  const auto function = [&](const std::vector<Variable>& inputs) {
    return apply_function<ResultOf>(inputs, parameters, result)[0];
  };
  if (parameters.empty()) return {.passed = true, .message = {}};
  const GradCheckResult checked = grad_check(function, values, options);
  for (std::size_t i = 0; i < values.size(); ++i) {
    copy_(parameters[i].local().tensor(), values[i].tensor());
  }
  return checked;
}

}  // namespace tessera::testing
