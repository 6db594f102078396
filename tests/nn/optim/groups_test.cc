// Parameter groups: splitting a model, options of their own, learning rates, errors.
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/ema.h"
#include "tessera/nn/optim/lion.h"
#include "tessera/nn/optim/muon.h"
#include "tessera/nn/optim/parameter_group.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::NamedParameter;
using nn::Parameter;
using nn::optim::SGD;
using nn::optim::ZeroGrad;
using namespace testing;

std::vector<std::string> names(const std::vector<Parameter>& parameters) {
  std::vector<std::string> out;
  for (const Parameter& parameter : parameters) out.push_back(parameter.name());
  return out;
}

using Names = std::vector<std::string>;

TEST_CASE("group_parameters: each to the first predicate that accepts it, the rest to the last") {
  nn::Sequential model;
  model.add<nn::Linear>({.in = 2, .out = 3});
  model.add<nn::Linear>({.in = 3, .out = 1});
  nn::initialize(model);
  const auto [matrices, others] = nn::optim::group_parameters(model, nn::optim::min_dims(2));
  CHECK(names(matrices) == Names{"0.weight", "1.weight"});
  CHECK(names(others) == Names{"0.bias", "1.bias"});
  const auto head = [](const NamedParameter& named) { return named.name.starts_with("1."); };
  const auto [first, second, rest] =
      nn::optim::group_parameters(model, head, nn::optim::min_dims(2));
  CHECK(names(first) == Names{"1.weight", "1.bias"});
  CHECK(names(second) == Names{"0.weight"});
  CHECK(names(rest) == Names{"0.bias"});
  const auto [all] = nn::optim::group_parameters(model.named_parameters());
  CHECK(all.size() == 4);
}

TEST_CASE("each group is stepped with its own options, in one launch's arithmetic") {
  Parameter a = make({3}, 1), b = make({2, 2}, 2), c = make({2}, 3);
  const auto start_a = local_values(a), start_b = local_values(b), start_c = local_values(c);
  SGD optimizer({{.parameters = {a, a}, .options = {.lr = 0.5}},
                 {.parameters = {}, .options = {.lr = 7}},
                 {.parameters = {b}, .options = {.lr = 0.25, .weight_decay = 1}}});
  CHECK(optimizer.group_count() == 3);
  CHECK(optimizer.group(0).parameters.size() == 1);
  CHECK(optimizer.group(2).options.weight_decay == 1);
  CHECK(optimizer.groups().size() == 3);
  optimizer.add_group({.parameters = {c}, .options = {.lr = 2}});
  CHECK(optimizer.parameters().size() == 3);
  for (Parameter* p : {&a, &b, &c}) p->set_grad(ones(p->shape(), kDouble));
  optimizer.step();
  for (std::size_t i = 0; i < 3; ++i) CHECK(local_values(a)[i] == start_a[i] - 0.5);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(local_values(b)[i] == Approx(start_b[i] - 0.25 * (1 + start_b[i])).epsilon(1e-15));
  for (std::size_t i = 0; i < 2; ++i) CHECK(local_values(c)[i] == start_c[i] - 2);
}

TEST_CASE("learning rates: of one group and of all, and what they were at first") {
  const Parameter a = make({1}, 1), b = make({1}, 2);
  SGD optimizer({{.parameters = {a}, .options = {.lr = 0.5}},
                 {.parameters = {b}, .options = {.lr = 0.25, .momentum = 0.5}}});
  CHECK(optimizer.lr() == 0.5);
  CHECK(optimizer.lr(1) == 0.25);
  optimizer.set_lr(1, 3);
  CHECK(optimizer.lr(0) == 0.5);
  CHECK(optimizer.options(1).lr == 3);
  CHECK(optimizer.options(1).momentum == 0.5);
  optimizer.set_lr(4);
  CHECK(optimizer.lr(0) == 4);
  CHECK(optimizer.lr(1) == 4);
  CHECK(optimizer.initial_lr() == 0.5);
  CHECK(optimizer.initial_lr(1) == 0.25);
  optimizer.set_options(1, {.lr = 9});
  CHECK(optimizer.lr(1) == 9);
  CHECK(optimizer.initial_lr(1) == 0.25);
}

TEST_CASE("set_options: state comes and goes with the options") {
  Parameter p = make({2}, 1);
  SGD optimizer({p}, {.lr = 1, .momentum = 0.5});
  p.set_grad(ones({2}, kDouble));
  optimizer.step();
  CHECK(optimizer.state(p, "momentum").defined());
  optimizer.set_options(0, {.lr = 1});
  CHECK_FALSE(optimizer.state(p, "momentum").defined());
  optimizer.step();
  optimizer.set_options(0, {.lr = 1, .momentum = 0.5, .dampening = 0.5});
  CHECK_FALSE(optimizer.state(p, "momentum").defined());
  optimizer.step();  // begins anew: the gradient itself
  CHECK(values(optimizer.state(p, "momentum")) == std::vector<double>{1, 1});
  CHECK(optimizer.steps(p) == 3);
}

TEST_CASE("group errors") {
  const Parameter a = make({3}, 1), b = make({2, 5}, 2), unknown = make({4}, 3);
  CHECK(thrown<InvalidArgument>([&] {
          SGD({{.parameters = {a}, .options = {.lr = 1}},
               {.parameters = {b, a}, .options = {.lr = 1}}});
        }) ==
        "[nn.optim] \"p1\" of shape [3] is in group 0 already and shall be in group 1; a parameter "
        "is in one group");
  CHECK(thrown<InvalidArgument>([&] { SGD({{.parameters = {}, .options = {.lr = 1}}}); }) ==
        "[nn.optim] an optimizer needs parameters: the model has none, or the list is empty");
  CHECK(thrown<InvalidArgument>([&] {
          SGD({{.parameters = {a}, .options = {.lr = 1}}, {.parameters = {b}, .options = {}}});
        }) == "[nn.optim.SGD] lr is -1; give one that is at least 0");
  SGD optimizer({a}, {.lr = 1});
  const std::string missing = "[nn.optim] group 1 does not exist: there are 1, counted from 0";
  CHECK(thrown<InvalidArgument>([&] { optimizer.lr(1); }) == missing);
  CHECK(thrown<InvalidArgument>([&] { optimizer.initial_lr(1); }) == missing);
  CHECK(thrown<InvalidArgument>([&] { optimizer.set_lr(1, 0.5); }) == missing);
  CHECK(thrown<InvalidArgument>([&] { optimizer.group(1); }) == missing);
  CHECK(thrown<InvalidArgument>([&] { optimizer.set_options(1, {.lr = 1}); }) == missing);
  CHECK(thrown<InvalidArgument>([&] {
          optimizer.options(-1);
        }).starts_with("[nn.optim] group -1 does not exist"));
  CHECK(thrown<InvalidArgument>([&] { optimizer.set_options(0, {}); }) ==
        "[nn.optim.SGD] lr is -1; give one that is at least 0");
  CHECK(thrown<InvalidArgument>([&] {
          optimizer.add_group({.parameters = {b, a}, .options = {.lr = 1}});
        }).starts_with("[nn.optim] \"p1\" of shape [3] is in group 0 already"));
  CHECK(optimizer.group_count() == 1);
  CHECK(optimizer.parameters().size() == 1);
  CHECK(thrown<InvalidArgument>([&] { optimizer.step(unknown); }) ==
        "[nn.optim] \"p3\" of shape [4] is not a parameter of this optimizer; add_group takes it "
        "in");
}

TEST_CASE("one parameter may be stepped alone") {
  Parameter a = make({2}, 1), b = make({2}, 2);
  SGD optimizer({a, b}, {.lr = 1});
  const auto start = local_values(a), still = local_values(b);
  a.set_grad(ones({2}, kDouble));
  b.set_grad(ones({2}, kDouble));
  optimizer.step(a);
  CHECK(local_values(a)[0] == start[0] - 1);
  CHECK(local_values(b) == still);
  CHECK(optimizer.steps(a) == 1);
  CHECK(optimizer.steps(b) == 0);
}

TEST_CASE("zero_grad to zero keeps the memory of gradients, and of none makes none") {
  Parameter a = make({2}, 1), b = make({2}, 2), c = make({2, 2}, 3);
  const Tensor grad = ones({2}, kDouble);
  a.set_grad(grad);
  c.set_grad(Tensor::scalar(3, kDouble).expand({2, 2}));  // shows one element four times
  SGD optimizer({a, b, c}, {.lr = 1});
  optimizer.zero_grad(ZeroGrad::kZero);
  CHECK(a.grad().storage() == grad.storage());
  CHECK(values(a.grad()) == std::vector<double>{0, 0});
  CHECK_FALSE(b.grad().defined());
  CHECK(values(c.grad()) == std::vector<double>(4, 0));
  optimizer.zero_grad();
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("parameters of several dtypes in one optimizer") {
  Parameter wide = make({3}, 1), narrow = make({3}, 2, DType::kF32),
            half = make({3}, 3, DType::kBF16);
  for (Parameter* p : {&wide, &narrow, &half}) p->set_grad(full({3}, 0.5, {.dtype = p->dtype()}));
  nn::optim::AdamW optimizer({wide, narrow, half}, {.lr = 0.125, .weight_decay = 0});
  const auto before = values(cast(half.local().tensor(), DType::kF32));
  optimizer.step();
  CHECK(optimizer.state(wide, "exp_avg").dtype() == DType::kF64);
  CHECK(optimizer.state(narrow, "exp_avg").dtype() == DType::kF32);
  CHECK(optimizer.state(half, "exp_avg").dtype() == DType::kF32);
  const auto after = values(cast(half.local().tensor(), DType::kF32));
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(after[i] - (before[i] - 0.125)) < 0.01);
}

// Plans are made there: nothing may read a value.
TEST_CASE("every optimizer, average and zeroing works on the null device") {
  Parameter p({.shape = {3, 5}, .init = nn::init::normal(0, 1)});
  p.set_name("p");
  p.materialize(kNull);
  p.set_grad(zeros({3, 5}, {.device = kNull}));
  SGD sgd({p}, {.lr = 1, .momentum = 0.9});
  nn::optim::Adam adam({p}, {.amsgrad = true});
  nn::optim::AdamW adamw({p}, {});
  nn::optim::Lion lion({p}, {});
  nn::optim::Muon muon({p}, {});
  for (nn::optim::Optimizer* optimizer :
       std::vector<nn::optim::Optimizer*>{&sgd, &adam, &adamw, &lion, &muon}) {
    optimizer->step();
    optimizer->step();
    optimizer->zero_grad(ZeroGrad::kZero);
    optimizer->load_state_dict(optimizer->state_dict());
    CHECK(optimizer->steps(p) == 2);
  }
  nn::optim::Ema ema({p}, {});
  ema.update();
  ema.update();
  const nn::optim::EmaScope averaged(ema);
  CHECK(ema.average(p).device() == kNull);
}

TEST_CASE("converting a model after a step with state is refused at the next one") {
  Parameter p = make({3}, 1);
  SGD optimizer({p}, {.lr = 1, .momentum = 0.9});
  p.set_grad(ones({3}, kDouble));
  optimizer.step();
  p.to(default_device(), DType::kF32);
  CHECK(thrown<StateError>([&] { optimizer.step(); }) ==
        "[nn.optim] momentum of \"p1\" is f64 on " + default_device().str() +
            ", and would be f32 on " + default_device().str() +
            ": the model was converted or moved after a step of this optimizer; build the "
            "optimizer again");
}

TEST_CASE("a step that throws leaves no state behind") {
  Parameter a = make({3}, 1), b = make({3}, 2);
  const auto owner = std::make_shared<FakeOwner>("g");
  SGD optimizer({b, a}, {.lr = 1, .momentum = 0.9, .dampening = 0.5});
  a.set_grad(ones({3}, kDouble));
  optimizer.step();
  a.shard(row_sharding({3}, 0, 2, 2), owner);  // its momentum no longer fits
  b.set_grad(ones({3}, kDouble));
  CHECK_THROWS_AS(optimizer.step(), StateError);
  CHECK_FALSE(optimizer.state(b, "momentum").defined());
  CHECK(optimizer.steps(b) == 0);
  CHECK(optimizer.steps(a) == 1);
}

}  // namespace
}  // namespace tessera
