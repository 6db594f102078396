#include "tessera/autograd/grad_check.h"

#include <algorithm>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace tessera {
namespace {

using Function = std::function<Variable(const std::vector<Variable>&)>;
using Values = std::vector<double>;

void check_inputs(const std::vector<Variable>& inputs, const char* where) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TESSERA_CHECK(inputs[i].defined() && inputs[i].is_leaf() && inputs[i].requires_grad() &&
                      inputs[i].dtype() == DType::kF64,
                  where, "input {} is not an f64 leaf that requires a gradient", i);
  }
}

// In (-1.5, -0.5) and (0.5, 1.5) by turns: no symmetry that would hide a swapped element, nothing
// small.
Tensor irregular(const Shape& shape, Device device, double seed) {
  Values values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = seed + 0.6180339887498949 * static_cast<double>(i + 1);
    values[i] = (0.5 + x - std::floor(x)) * (i % 2 == 0 ? 1 : -1);
  }
  return Tensor::from_vector(values, shape, device);
}

// Leaves of their own, so that the caller's variables keep their gradients and graphs.
std::vector<Variable> fresh_leaves(const std::vector<Values>& values,
                                   const std::vector<Variable>& like) {
  std::vector<Variable> leaves;
  for (std::size_t i = 0; i < like.size(); ++i)
    leaves.emplace_back(Tensor::from_vector(values[i], like[i].shape(), like[i].device()), true);
  return leaves;
}

double weighted_sum(const Function& function, const std::vector<Variable>& inputs) {
  const Variable result = function(inputs);
  const Values weights = irregular(result.shape(), result.device(), /*seed=*/0).to_vector<double>();
  const Values values = result.tensor().to_vector<double>();
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) total += weights[i] * values[i];
  return total;
}

// Zeros where an input does not contribute.
std::vector<Values> analytic_gradients(const Function& function,
                                       const std::vector<Variable>& inputs) {
  const Variable result = function(inputs);
  TESSERA_CHECK(result.dtype() == DType::kF64, "grad_check",
                "the function returned {}; compute in f64", dtype_name(result.dtype()));
  std::vector<Variable> gradients(inputs.size());
  if (result.requires_grad()) {
    const Tensor weights = irregular(result.shape(), result.device(), /*seed=*/0);
    gradients = grad({&result, 1}, inputs, {.gradient = weights});
  }
  std::vector<Values> out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    out.push_back(gradients[i].defined()
                      ? gradients[i].tensor().to_vector<double>()
                      : Values(static_cast<std::size_t>(inputs[i].numel()), 0.0));
  }
  return out;
}

std::string position(std::size_t element, const Shape& shape) {
  Shape index = shape;
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    const auto extent = static_cast<std::size_t>(shape[dim]);
    index[dim] = static_cast<std::int64_t>(element % extent);
    element /= extent;
  }
  return index.str();
}

struct Comparison {
  double worst = -1;  // error in units of the tolerance
  std::string message = "nothing to compare";

  void add(double analytic, double numeric, double tolerance, std::size_t input,
           const std::string& place) {
    const double scale = std::max({1.0, std::abs(analytic), std::abs(numeric)});
    double error = std::abs(analytic - numeric) / (tolerance * scale);
    if (std::isnan(error)) error = INFINITY;
    if (error <= worst) return;
    worst = error;
    message = fmt::format("input {}, element {}: analytic {:.17g}, numeric {:.17g}", input, place,
                          analytic, numeric);
  }
};

GradCheckResult compare(const Function& function, const std::vector<Variable>& inputs,
                        const GradCheckOptions& options) {
  GradModeGuard recording(true);
  std::vector<Values> values;
  for (const Variable& input : inputs) values.push_back(input.tensor().to_vector<double>());
  const std::vector<Values> analytic = analytic_gradients(function, fresh_leaves(values, inputs));
  Comparison comparison;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t e = 0; e < values[i].size(); ++e) {
      const double x = values[i][e];
      const double step = options.step * std::max(1.0, std::abs(x));
      values[i][e] = x + step;
      const double above = weighted_sum(function, fresh_leaves(values, inputs));
      values[i][e] = x - step;
      const double below = weighted_sum(function, fresh_leaves(values, inputs));
      values[i][e] = x;
      // The steps as taken, not as asked for: x +- step rounds.
      const double numeric = (above - below) / ((x + step) - (x - step));
      comparison.add(analytic[i][e], numeric, options.tolerance, i, position(e, inputs[i].shape()));
    }
  }
  return {.passed = comparison.worst <= 1, .message = comparison.message};
}

// sum(v * d(sum(w * function))/d(inputs)) as a differentiable function of inputs and w, which is
// the last argument.
Variable weighted_derivative(const Function& function, const std::vector<Variable>& arguments) {
  const std::vector<Variable> inputs(arguments.begin(), arguments.end() - 1);
  const Variable result = function(inputs);
  Variable total(Tensor::scalar(0, result.tensor().options()));
  if (!result.requires_grad()) return total;
  const Variable weighted = sum(mul(result, arguments.back()));
  const std::vector<Variable> gradients = grad({&weighted, 1}, inputs, {.create_graph = true});
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const Shape& shape = gradients[i].shape();
    const Variable v(irregular(shape, result.device(), 0.25 + static_cast<double>(i)));
    total = add(total, sum(mul(gradients[i], v)));
  }
  return total;
}

}  // namespace

GradCheckResult grad_check(const Function& function, const std::vector<Variable>& inputs,
                           const GradCheckOptions& options) {
  check_inputs(inputs, "grad_check");
  return compare(function, inputs, options);
}

GradCheckResult grad_grad_check(const Function& function, const std::vector<Variable>& inputs,
                                const GradCheckOptions& options) {
  check_inputs(inputs, "grad_grad_check");
  const Variable result = function(inputs);
  std::vector<Variable> arguments = inputs;
  arguments.emplace_back(irregular(result.shape(), result.device(), /*seed=*/0.5), true);
  const Function derivative = [&](const std::vector<Variable>& all) {
    return weighted_derivative(function, all);
  };
  return compare(derivative, arguments, options);
}

}  // namespace tessera
