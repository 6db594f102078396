// RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam and Adafactor: 16 bits, empty parameters, the null device, shards,
// and every error. Their steps are compared with PyTorch's in torch_steps_test.cc.
#include <catch2/catch.hpp>
#include <memory>

#include "tessera/nn/optim/adadelta.h"
#include "tessera/nn/optim/adafactor.h"
#include "tessera/nn/optim/adagrad.h"
#include "tessera/nn/optim/adamax.h"
#include "tessera/nn/optim/lbfgs.h"
#include "tessera/nn/optim/nadam.h"
#include "tessera/nn/optim/radam.h"
#include "tessera/nn/optim/rmsprop.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using namespace nn::optim;
using namespace testing;

using Make = std::unique_ptr<Optimizer> (*)(const std::vector<Parameter>&);

template <class O, class Options>
std::unique_ptr<Optimizer> made(const std::vector<Parameter>& parameters) {
  return std::make_unique<O>(parameters, Options{.lr = 0.1, .weight_decay = 0.1});
}

const std::pair<const char*, Make> kElementWise[] = {
    {"RMSprop",
     [](const std::vector<Parameter>& p) -> std::unique_ptr<Optimizer> {
       return std::make_unique<RMSprop>(
           p, RMSpropOptions{.lr = 0.1, .weight_decay = 0.1, .momentum = 0.5, .centered = true});
     }},
    {"Adagrad", made<Adagrad, AdagradOptions>},
    {"Adadelta", made<Adadelta, AdadeltaOptions>},
    {"Adamax", made<Adamax, AdamaxOptions>},
    {"NAdam", made<NAdam, NAdamOptions>},
    {"RAdam", made<RAdam, RAdamOptions>},
};

void run(Optimizer& optimizer, int steps, DType dtype) {
  for (int step = 0; step < steps; ++step) {
    std::uint64_t key = static_cast<std::uint64_t>(step) * 10;
    for (const Parameter& parameter : optimizer.parameters())
      parameter.set_grad(cast(random_gradient(parameter.local().shape(), key++), dtype));
    optimizer.step();
  }
}

TEST_CASE("16-bit parameters have states of f32, and steps near those of f64") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const auto& [name, make_optimizer] : kElementWise) {
      INFO(name << " " << dtype_name(dtype));
      const Parameter half = make({7, 3}, 1, dtype);
      Parameter exact = make({7, 3}, 1);
      copy_(exact.local().tensor(), half.local().tensor());
      const auto a = make_optimizer({half}), b = make_optimizer({exact});
      CHECK(a->type_name() == name);
      run(*a, 3, dtype);
      run(*b, 3, DType::kF64);
      CHECK(distance(values(cast(half.local().tensor(), DType::kF64)), local_values(exact)) <
            (dtype == DType::kBF16 ? 0.05 : 0.01));
      const nn::StateDict saved = a->state_dict();
      for (const auto& [state, value] : saved) {
        if (const Tensor* tensor = std::get_if<Tensor>(&value))
          CHECK(tensor->dtype() == DType::kF32);
      }
    }
  }
}

TEST_CASE("element-wise optimizers update a shard as the rows of the whole") {
  for (const auto& [name, make_optimizer] : kElementWise) {
    INFO(name);
    const Parameter whole = make({5, 3}, 4);
    Parameter part = make({5, 3}, 4);
    part.shard(row_sharding({5, 3}, 2, 2, 2), std::make_shared<FakeOwner>("g"));
    const auto a = make_optimizer({whole}), b = make_optimizer({part});
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tensor gradient = random_gradient({5, 3}, step);
      whole.set_grad(gradient);
      part.set_grad(contiguous(gradient.narrow(0, 2, 2)));
      a->step();
      b->step();
    }
    CHECK(local_values(part) == values(contiguous(whole.local().tensor().narrow(0, 2, 2))));
  }
}

TEST_CASE("Adafactor and LBFGS refuse a shard, and change nothing") {
  Parameter part = make({5, 3}, 4);
  part.shard(row_sharding({5, 3}, 2, 2, 2), std::make_shared<FakeOwner>("g"));
  part.set_grad(random_gradient({2, 3}, 1));
  const std::vector<double> before = local_values(part);
  const std::string text =
      "\"p4\" of shape [5, 3] is sharded over data, and this optimizer needs whole parameters: "
      "leave it unsharded, or give it to an optimizer that works element by element";
  Adafactor adafactor({part}, {});
  CHECK(thrown<StateError>([&] { adafactor.step(); }) == "[nn.optim.Adafactor] " + text);
  LBFGS lbfgs({part}, {});
  CHECK(thrown<StateError>([&] { lbfgs.step([] { return Variable(); }); }) ==
        "[nn.optim.LBFGS] " + text);
  CHECK(local_values(part) == before);
  CHECK_FALSE(adafactor.state(part, "row_var").defined());
}

TEST_CASE("parameters without elements, and on the null device, are stepped too") {
  for (const auto& [name, make_optimizer] : kElementWise) {
    INFO(name);
    const Parameter empty = make({0, 3}, 1);
    run(*make_optimizer({empty}), 2, DType::kF64);
    Parameter planned({.shape = {3, 2}, .init = nn::init::zeros()});
    planned.materialize(kNull);
    planned.set_grad(Tensor::empty({3, 2}, {.device = kNull}));
    make_optimizer({planned})->step();
  }
  const Parameter empty = make({0, 3}, 1);
  Adafactor on_empty({empty}, {});
  run(on_empty, 2, DType::kF64);
  Parameter planned({.shape = {3, 2}, .init = nn::init::zeros()});
  planned.materialize(kNull);
  planned.set_grad(Tensor::empty({3, 2}, {.device = kNull}));
  Adafactor({planned}, {}).step();
  const Parameter half = make({4, 4}, 1, DType::kBF16);
  Adafactor on_half({half}, {});
  run(on_half, 2, DType::kBF16);
  CHECK(on_half.state(half, "col_var").dtype() == DType::kF32);
}

TEST_CASE("options outside their ranges are named") {
  const std::vector<Parameter> p = {make({2}, 1)};
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const std::string least = "; give one that is at least 0";
  CHECK(text([&] { RMSprop(p, {.lr = -1}); }) == "[nn.optim.RMSprop] lr is -1" + least);
  CHECK(text([&] { RMSprop(p, {.alpha = -2}); }) == "[nn.optim.RMSprop] alpha is -2" + least);
  CHECK(text([&] { RMSprop(p, {.momentum = -2}); }) == "[nn.optim.RMSprop] momentum is -2" + least);
  CHECK(text([&] { Adagrad(p, {.lr_decay = -1}); }) == "[nn.optim.Adagrad] lr_decay is -1" + least);
  CHECK(text([&] { Adagrad(p, {.initial_accumulator_value = -1}); }) ==
        "[nn.optim.Adagrad] initial_accumulator_value is -1" + least);
  CHECK(text([&] { Adadelta(p, {.rho = 1.5}); }) ==
        "[nn.optim.Adadelta] rho is 1.5; it lies in [0, 1]");
  CHECK(text([&] {
          Adamax(p, {.betas = {0.9, 1}});
        }) == "[nn.optim.Adamax] betas are 0.9 and 1; they lie in [0, 1)");
  CHECK(text([&] { NAdam(p, {.momentum_decay = -1}); }) ==
        "[nn.optim.NAdam] momentum_decay is -1" + least);
  CHECK(text([&] { RAdam(p, {.eps = -1}); }) == "[nn.optim.RAdam] eps is -1" + least);
  CHECK(text([&] { Adafactor(p, {.beta2_decay = 1}); }) ==
        "[nn.optim.Adafactor] beta2_decay is 1; it must not be above 0");
  CHECK(text([&] { Adafactor(p, {.d = 0.5}); }) ==
        "[nn.optim.Adafactor] d is 0.5; it must be at least 1");
  CHECK(text([&] { Adafactor(p, {.eps2 = -1}); }) == "[nn.optim.Adafactor] eps2 is -1" + least);
}

}  // namespace
}  // namespace tessera
