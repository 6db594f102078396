// A user-defined operation with a gradient: its forward, the tensors it saves, its backward, a check
// of the derivatives against finite differences, and its use in the loss of a sharded model.
//
//     custom_operation_example --ranks 2

#include <cmath>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

// log(cosh(x)): x^2 / 2 near 0, |x| - log(2) far away. Computed directly, cosh would overflow.
class LogCosh final : public CustomFunction {
 public:
  const char* name() const override { return "log_cosh"; }

  std::vector<Variable> forward(FunctionContext& context,
                                const std::vector<Variable>& inputs) override {
    context.save_for_backward({inputs[0]});
    const Variable size = abs(inputs[0]);
    return {size + softplus(size * -2) - std::log(2.0)};
  }
  Gradients backward(FunctionContext& context, const Gradients& dy) override {
    return {dy[0] * tanh(context.saved_variables()[0])};
  }
  // backward is made of differentiable operations.
  bool is_twice_differentiable() const override { return true; }
};
Variable log_cosh(const Variable& x) { return apply_function<LogCosh>({x})[0]; }

// Checks the first and second derivative of every element.
void check_gradient() {
  const Tensor x = Tensor::from_vector<double>({-30, -2, -0.5, 0, 1e-3, 0.7, 3, 50}, {2, 4});
  const auto function = [](const std::vector<Variable>& in) { return log_cosh(in[0]); };
  for (const GradCheckResult& result :
       {grad_check(function, {Variable(x, true)}), grad_grad_check(function, {Variable(x, true)})})
    TESSERA_CHECK(result.passed, "example", "{}", result.message);
  std::printf("both derivatives agree with differences\n");
}

// Fits the slope of a line through points y = 2 x + 1, a tenth of which are outliers. The model is
// sharded, and each rank has 60 / world size of the points.
template <class Loss>
double fitted_slope(distributed::World& world, const Loss& loss_of) {
  const Tensor all_x = reshape(arange(60) / 30.0 - 1.0, {60, 1});
  const Tensor all_y = all_x * 2.0 + 1.0;
  for (int i = 0; i < 60; i += 10) fill_(all_y.select(0, i), 30);
  const int64_t count = 60 / world.size(), first = count * world.rank();
  const Tensor x = all_x.narrow(0, first, count), y = all_y.narrow(0, first, count);
  nn::Linear line({.in = 1, .out = 1});
  fsdp::fully_shard(line, {.mesh = world.mesh()});
  nn::initialize(line, {.seed = 1, .device = world.device()});
  nn::optim::SGD optimizer(line.parameters(), {.lr = 0.3});
  for (int step = 0; step < 500; ++step) {
    backward(mean(loss_of(line(Variable(x)) - y)));
    optimizer.step();
    optimizer.zero_grad();
  }
  const fsdp::FullParameters full(line);
  return line.weight().value().item<float>();
}

int main(int argc, char** argv) {
  return distributed::launch(argc, argv, [](distributed::World& world) {
    if (world.rank() == 0) check_gradient();
    const double robust =
        fitted_slope(world, [](const Variable& error) { return log_cosh(error); });
    const double squared = fitted_slope(world, [](const Variable& error) { return square(error); });
    if (world.rank() == 0)
      std::printf("slope 2 is fitted as %.3f, and as %.3f by squares\n", robust, squared);
    TESSERA_CHECK(std::abs(robust - 2) < 0.1 && std::abs(squared - 2) > 1, "example",
                  "the slopes are {} and {}", robust, squared);
  });
}
