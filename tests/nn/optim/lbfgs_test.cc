// L-BFGS: the parameters and losses of PyTorch's, with and without a line search; errors.
#include "tessera/nn/optim/lbfgs.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::optim::LBFGS;
using nn::optim::LBFGSOptions;
using namespace testing;

Parameter start(const std::vector<double>& elements, const Shape& shape, const char* name = "p") {
  Parameter p({.shape = shape, .dtype = DType::kF64, .init = nn::init::zeros()});
  p.set_name(name);
  p.materialize(default_device());
  copy_(p.local().tensor(), Tensor::from_vector(elements, shape));
  return p;
}

// Two parameters, of -1.2 and of 1 and 0.5, and a loss of their three elements.
struct Problem {
  explicit Problem(std::function<Variable(const Variable&)> in_loss) : loss(std::move(in_loss)) {}

  std::vector<double> run(LBFGS& optimizer, int steps) {
    std::vector<double> first;
    for (int i = 0; i < steps; ++i) {
      const Variable y = optimizer.step([&] {
        ++calls;
        optimizer.zero_grad();
        const Variable value = loss(cat({a.value(), reshape(b.value(), {2})}));
        backward(value);
        return value;
      });
      first.push_back(y.item<double>());
    }
    return first;
  }
  std::vector<double> elements() const {
    std::vector<double> out = local_values(a);
    for (double x : local_values(b)) out.push_back(x);
    return out;
  }

  Parameter a = start({-1.2}, {1}), b = start({1, 0.5}, {1, 2}, "q");
  std::function<Variable(const Variable&)> loss;
  int calls = 0;
};

Variable rosenbrock(const Variable& x) {
  const Variable u = narrow(x, 0, 0, 2), v = narrow(x, 0, 1, 2);
  return sum(add(square(sub(1, u)), mul(square(sub(v, square(u))), 100)));
}

Variable bowl(const Variable& x) {
  const Variable middle(Tensor::from_vector<double>({0, 1, 2}, {3})),
      weight(Tensor::from_vector<double>({1, 2, 5}, {3}));
  return add(sum(mul(square(sub(x, middle)), weight)), mul(sum(square(square(x))), 0.1));
}

void check(Problem& problem, const LBFGSOptions& options, int steps, int calls,
           const std::vector<double>& elements, const std::vector<double>& losses) {
  LBFGS optimizer({problem.a, problem.b}, options);
  const std::vector<double> first = problem.run(optimizer, steps);
  CHECK(problem.calls == calls);
  // A GPU adds in another order, and forty evaluations amplify that.
  const double tolerance = default_device().is_cuda() ? 1e-7 : 1e-8;
  CHECK(distance(problem.elements(), elements) < tolerance);
  CHECK(distance(first, losses) < tolerance);
}

TEST_CASE("LBFGS with a line search is PyTorch's") {
  Problem slow(rosenbrock);
  check(slow, {.max_iter = 8, .strong_wolfe = true}, 4, 40,
        {0.5538395861173335, 0.27586130368105766, 0.04973395226462447},
        {49.199999999999996, 3.5555160668023, 2.7071233472744693, 1.9966807736669612});
  Problem whole(rosenbrock);
  check(whole, {.lr = 0.5, .max_iter = 30, .history_size = 3, .strong_wolfe = true}, 3, 75,
        {0.9999955158083768, 0.9999908635183691, 0.9999811721154198},
        {49.199999999999996, 1.3915406467749953, 4.481406274199837e-08});
}

// A function on which the interval shrinks slowly, so that the search steps away from its ends.
struct SlowLine {
  double slope, steepness, place, height, wave, frequency, scale;

  Variable operator()(const Variable& x) const {
    const Variable wall = mul(exp(mul(sub(x, place), steepness)), height);
    const Variable waves = mul(sin(mul(x, frequency)), wave);
    return div(sum(add(sub(wall, mul(x, slope)), waves)), scale);
  }
};

void check_line(const SlowLine& line, const LBFGSOptions& options, int calls, double expected) {
  const Parameter p = start({0}, {1});
  LBFGS optimizer({p}, options);
  int count = 0;
  optimizer.step([&] {
    ++count;
    optimizer.zero_grad();
    const Variable loss = line(p.value());
    backward(loss);
    return loss;
  });
  CHECK(count == calls);
  CHECK(std::abs(local_values(p)[0] - expected) < 1e-10);
}

TEST_CASE("a slow line search is PyTorch's, and ends where the calls do") {
  const SlowLine steep{.slope = 5,
                       .steepness = 4,
                       .place = 1,
                       .height = 1,
                       .wave = 0.5,
                       .frequency = 7,
                       .scale = 1.4267374444450631},
      wavy{.slope = 3,
           .steepness = 2,
           .place = 0.5,
           .height = 0.1,
           .wave = 0.2,
           .frequency = 11,
           .scale = 0.7264241117657115};
  check_line(steep, {.lr = 2, .max_iter = 1, .max_eval = 40, .strong_wolfe = true}, 6,
             0.895556914424375);
  check_line(wavy, {.lr = 8, .max_iter = 1, .max_eval = 40, .strong_wolfe = true}, 8,
             1.6219605150375727);
  check_line(wavy, {.lr = 8, .max_iter = 1, .max_eval = 4, .strong_wolfe = true}, 5,
             1.8029346570343612);
}

TEST_CASE("LBFGS without a line search is PyTorch's") {
  Problem problem(bowl);
  check(problem, {.lr = 0.3, .max_iter = 4, .history_size = 2}, 5, 20,
        {-0.003365349240653179, 0.9217642965093336, 1.7764839980475067},
        {13.00361, 2.465563391738598, 1.4417270495988443, 1.3355910584951578, 1.3304891562209131});
  Problem limited(bowl);
  check(limited, {.lr = 0.3, .max_iter = 200, .max_eval = 7}, 1, 7,
        {-0.5453764320405008, 0.9372332801616197, 1.6670424099318584}, {13.00361});
}

TEST_CASE("LBFGS leaves alone what needs no step, and what is not trained") {
  Problem problem([](const Variable& x) { return sum(square(x)); });
  problem.b.set_requires_grad(false);
  LBFGS optimizer({problem.a, problem.b}, {.strong_wolfe = true});
  problem.run(optimizer, 3);
  CHECK(std::abs(problem.elements()[0]) < 1e-7);
  CHECK(problem.elements()[1] == 1);
  const int calls = problem.calls;
  problem.run(optimizer, 1);  // the gradient is small: one call, no move
  CHECK(problem.calls == calls + 1);
  CHECK(optimizer.state_dict().boolean("groups.0.strong_wolfe"));
  CHECK(optimizer.state_dict().integer("groups.0.history_size") == 100);
}

TEST_CASE("LBFGS: errors") {
  const Parameter p = start({1, 2}, {2});
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  LBFGS optimizer({p}, {});
  p.set_grad(ones({2}, {.dtype = DType::kF64}));
  CHECK(thrown<StateError>([&] { optimizer.step(); }) ==
        "[nn.optim.LBFGS] a step needs the function that computes the loss and its gradients: call "
        "step(function)");
  CHECK(text([&] { optimizer.step([] { return Variable(); }); }) ==
        "[nn.optim.LBFGS] the function returned nothing; it returns a loss of one element");
  CHECK(text([&] { optimizer.step([] { return Variable(zeros({2})); }); }) ==
        "[nn.optim.LBFGS] the function returned a shape of [2]; it returns a loss of one element");
  optimizer.add_group({.parameters = {start({1}, {1})}});
  CHECK(thrown<StateError>([&] { optimizer.step([] { return Variable(zeros({})); }); }) ==
        "[nn.optim.LBFGS] the parameters are in 2 groups; it takes one");
  CHECK(text([&] { LBFGS({p}, {.lr = -1}); }) ==
        "[nn.optim.LBFGS] lr is -1; give one that is at least 0");
  CHECK(text([&] { LBFGS({p}, {.max_iter = 0}); }) ==
        "[nn.optim.LBFGS] max_iter 0 and history_size 100 must be at least 1, max_eval 0 at least "
        "0");
}

}  // namespace
}  // namespace tessera
