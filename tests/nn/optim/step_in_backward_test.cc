// Optimizer in backward: the numbers of the ordinary step, and no gradient is left.
#include "tessera/nn/optim/step_in_backward.h"

#include <catch2/catch.hpp>
#include <memory>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using namespace nn::optim;
using namespace testing;

std::unique_ptr<nn::Sequential> make_model() {
  auto model = std::make_unique<nn::Sequential>();
  model->add<nn::Linear>({.in = 3, .out = 5, .dtype = DType::kF64});
  model->add<nn::ReLU>();
  model->add<nn::Linear>({.in = 5, .out = 3, .dtype = DType::kF64});
  nn::initialize(*model);
  return model;
}

// The model applied twice, so that every parameter has two uses.
Variable loss_of(nn::Sequential& model, std::uint64_t key) {
  const Variable x(random_gradient({4, 3}, key));
  return sum(square(model(model(x))));
}

template <class Optimizer, class Options>
void check_equal_numbers(const Options& options) {
  const auto plain = make_model(), stepped = make_model();
  Optimizer after(plain->parameters(), options), inside(stepped->parameters(), options);
  const StepInBackward in_backward(inside);
  for (std::uint64_t step = 0; step < 4; ++step) {
    backward(loss_of(*plain, step));
    after.step();
    after.zero_grad();
    backward(loss_of(*stepped, step));
    for (const Parameter& parameter : stepped->parameters()) {
      CHECK_FALSE(parameter.grad().defined());
      CHECK(inside.steps(parameter) == static_cast<std::int64_t>(step + 1));
    }
  }
  const auto expected = plain->parameters(), got = stepped->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(local_values(got[i]) == local_values(expected[i]));
}

TEST_CASE("steps in backward have the numbers of the ordinary step") {
  check_equal_numbers<SGD>(SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1});
  check_equal_numbers<Adam>(AdamOptions{.lr = 0.01, .amsgrad = true});
  check_equal_numbers<AdamW>(AdamWOptions{.lr = 0.01});
}

TEST_CASE("frozen parameters stay, and when the object goes gradients stay too") {
  const auto model = make_model();
  auto parameters = model->parameters();
  parameters[0].set_requires_grad(false);
  SGD optimizer(parameters, {.lr = 0.01});
  const auto frozen = local_values(parameters[0]);
  {
    const StepInBackward in_backward(optimizer);
    backward(loss_of(*model, 1));
    CHECK(local_values(parameters[0]) == frozen);
    CHECK(optimizer.steps(parameters[0]) == 0);
    CHECK(optimizer.steps(parameters[1]) == 1);
  }
  backward(loss_of(*model, 2));
  CHECK(optimizer.steps(parameters[1]) == 1);
  CHECK(parameters[1].grad().defined());
}

TEST_CASE("steps in backward: errors") {
  Parameter p = make({4}, 1);
  SGD optimizer({p}, {.lr = 1});
  p.set_grad(ones({4}, kDouble));
  CHECK(thrown<StateError>([&] { StepInBackward in_backward(optimizer); }) ==
        "[nn.optim.StepInBackward] \"p1\" has a gradient, to which the next backward would add: "
        "call zero_grad() first");
  p.zero_grad();
  {
    const StepInBackward in_backward(optimizer);
    const auto owner = std::make_shared<FakeOwner>("blocks.1");
    p.shard(row_sharding({4}, 0, 2, 2), owner);
    p.value_leaf().bind(zeros({4}, kDouble));
    p.set_state(nn::ParameterState::kFull);
    CHECK(thrown<StateError>([&] { backward(sum(p.value())); }) ==
          "[nn.optim.StepInBackward] \"p1\" was sharded after this was made, and collects its "
          "gradient elsewhere now: make it after fully_shard");
  }
  const Parameter empty({.shape = {2}, .init = nn::init::zeros()});
  SGD without({empty}, {.lr = 1});
  CHECK(thrown<StateError>([&] {
          StepInBackward in_backward(without);
        }).find("has no elements yet") != std::string::npos);
}

}  // namespace
}  // namespace tessera
