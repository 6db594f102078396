// Saved optimizer state: a run that goes on from it is the run that was never stopped; every misfit
// is named, all at once.
#include <catch2/catch.hpp>
#include <memory>

#include "tessera/nn/layers/linear.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/adadelta.h"
#include "tessera/nn/optim/adafactor.h"
#include "tessera/nn/optim/adagrad.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/adamax.h"
#include "tessera/nn/optim/lion.h"
#include "tessera/nn/optim/muon.h"
#include "tessera/nn/optim/nadam.h"
#include "tessera/nn/optim/radam.h"
#include "tessera/nn/optim/rmsprop.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::StateDict;
using namespace nn::optim;
using namespace testing;

constexpr const char* kMisfit = "[nn.optim.load_state_dict] the saved state does not fit this ";

// Two parameters, which a step gives gradients of its own.
struct Reference {
  Parameter a = make({3, 2}, 1), b = make({2, 4}, 2);
  void step(Optimizer& optimizer, std::uint64_t key) {
    a.set_grad(random_gradient(a.shape(), key));
    b.set_grad(random_gradient(b.shape(), key + 50));
    optimizer.step();
  }
};

template <class Optimizer, class Options>
void check_resume(const Options& options) {
  const auto build = [&](Reference& reference, double second_lr) {
    Options other = options;
    other.lr = second_lr;
    return std::make_unique<Optimizer>(
        std::vector<typename Optimizer::Group>{{.parameters = {reference.a}, .options = options},
                                               {.parameters = {reference.b}, .options = other}});
  };
  Reference whole, resumed;
  const auto straight = build(whole, options.lr / 2);
  for (std::uint64_t step = 0; step < 3; ++step) whole.step(*straight, step);
  straight->set_lr(1, 0.03);
  const StateDict saved = straight->state_dict().clone();
  copy_(resumed.a.local().tensor(), whole.a.local().tensor());
  copy_(resumed.b.local().tensor(), whole.b.local().tensor());
  const auto second = build(resumed, 7);
  resumed.b.set_grad(ones({2, 4}, kDouble));
  second->load_state_dict(saved);  // before the first step
  CHECK(second->lr(1) == 0.03);
  CHECK(second->initial_lr(1) == options.lr / 2);
  CHECK(second->steps(resumed.a) == 3);
  for (std::uint64_t step = 3; step < 6; ++step) {
    whole.step(*straight, step);
    resumed.step(*second, step);
  }
  CHECK(local_values(resumed.a) == local_values(whole.a));
  CHECK(local_values(resumed.b) == local_values(whole.b));
}

TEST_CASE("a run that goes on from saved state has the bits of one that was not stopped") {
  check_resume<SGD>(SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1});
  check_resume<SGD>(SgdOptions{.lr = 0.1, .maximize = true});
  check_resume<Adam>(AdamOptions{.weight_decay = 0.1, .amsgrad = true});
  check_resume<AdamW>(AdamWOptions{.betas = {0.5, 0.6}});
  check_resume<Lion>(LionOptions{.weight_decay = 0.1});
  check_resume<Muon>(MuonOptions{.newton_schulz = {.steps = 4}, .match_rms_adamw = true});
  check_resume<RMSprop>(RMSpropOptions{.momentum = 0.9, .centered = true});
  check_resume<Adagrad>(AdagradOptions{.lr_decay = 0.1, .initial_accumulator_value = 0.5});
  check_resume<Adadelta>(AdadeltaOptions{.weight_decay = 0.1});
  check_resume<Adamax>(AdamaxOptions{.weight_decay = 0.1});
  check_resume<NAdam>(NAdamOptions{.momentum_decay = 0.2, .decoupled_weight_decay = true});
  check_resume<RAdam>(RAdamOptions{.betas = {0.5, 0.6}});
  check_resume<Adafactor>(AdafactorOptions{.weight_decay = 0.1});
}

TEST_CASE("a parameter has the states of its kind, in their own shapes") {
  Parameter matrix = make({3, 2}, 1), vector = make({4}, 2);
  Adafactor optimizer({matrix, vector}, {});
  for (Parameter& parameter : {std::ref(matrix), std::ref(vector)})
    parameter.set_grad(random_gradient(parameter.shape(), 3));
  optimizer.step();
  StateDict saved = optimizer.state_dict().clone();
  CHECK(saved.tensor("state.p1.row_var").shape() == Shape{3, 1});
  CHECK(saved.tensor("state.p1.col_var").shape() == Shape{1, 2});
  CHECK(saved.tensor("state.p2.variance").shape() == Shape{4});
  CHECK(saved.find("state.p1.variance") == nullptr);
  optimizer.load_state_dict(saved);
  saved.set("state.p1.variance", zeros({3, 2}, kDouble));
  saved.set("state.p1.row_var", zeros({3, 2}, kDouble));
  saved.erase("state.p2.variance");
  CHECK(thrown<InvalidArgument>([&] { optimizer.load_state_dict(saved); }) ==
        std::string(kMisfit) +
            "Adafactor: state.p1.row_var is f64 [3, 2], not f64 [3, 1]; state.p1.variance is no "
            "state under the saved options; state.p2.variance is missing");
}

TEST_CASE("what is saved, by name") {
  nn::Linear layer({.in = 2, .out = 3, .dtype = DType::kF64});
  nn::initialize(layer, {.prefix = "up."});
  AdamW optimizer({{.parameters = {layer.weight()}, .options = {.lr = 0.5}},
                   {.parameters = {layer.bias()}, .options = {}}});
  layer.weight().set_grad(ones({3, 2}, kDouble));
  optimizer.step();
  optimizer.set_lr(0, 0.25);
  const StateDict saved = optimizer.state_dict();
  std::vector<std::string> names;
  for (const auto& [name, value] : saved) names.push_back(name);
  CHECK(names == std::vector<std::string>{"type",
                                          "groups.0.lr",
                                          "groups.0.beta1",
                                          "groups.0.beta2",
                                          "groups.0.eps",
                                          "groups.0.weight_decay",
                                          "groups.0.amsgrad",
                                          "groups.0.maximize",
                                          "groups.0.initial_lr",
                                          "groups.1.lr",
                                          "groups.1.beta1",
                                          "groups.1.beta2",
                                          "groups.1.eps",
                                          "groups.1.weight_decay",
                                          "groups.1.amsgrad",
                                          "groups.1.maximize",
                                          "groups.1.initial_lr",
                                          "parameters.up.weight",
                                          "parameters.up.bias",
                                          "state.up.weight.step",
                                          "state.up.weight.exp_avg",
                                          "state.up.weight.exp_avg_sq"});
  CHECK(saved.text("type") == "AdamW");
  CHECK(saved.number("groups.0.lr") == 0.25);
  CHECK(saved.number("groups.0.initial_lr") == 0.5);
  CHECK_FALSE(saved.boolean("groups.0.amsgrad"));
  CHECK(saved.integer("parameters.up.bias") == 1);
  CHECK(saved.integer("state.up.weight.step") == 1);
  CHECK(saved.tensor("state.up.weight.exp_avg").storage() ==
        optimizer.state(layer.weight(), "exp_avg").storage());
}

TEST_CASE("loading drops what was there, and takes one's own state as well") {
  Reference reference;
  SGD optimizer({reference.a, reference.b}, {.lr = 1, .momentum = 0.5});
  const StateDict fresh = optimizer.state_dict().clone();
  reference.step(optimizer, 1);
  const auto momentum = values(optimizer.state(reference.a, "momentum"));
  optimizer.load_state_dict(optimizer.state_dict());
  CHECK(values(optimizer.state(reference.a, "momentum")) == momentum);
  optimizer.load_state_dict(fresh);
  CHECK_FALSE(optimizer.state(reference.a, "momentum").defined());
  CHECK(optimizer.steps(reference.a) == 0);
}

TEST_CASE("state needs names, each once") {
  Parameter first = make({2}, 1), second = make({2}, 1), third = make({2}, 1);
  Parameter nameless({.shape = {3, 2}, .init = nn::init::zeros()});
  SGD optimizer({first, nameless, second, third}, {.lr = 1});
  const std::string problem =
      "state is saved by the names of parameters: number 1 of shape [3, 2] has none; several are "
      "called \"p1\"; nn::initialize(model) names them";
  CHECK(thrown<InvalidArgument>([&] { optimizer.state_dict(); }) ==
        "[nn.optim.state_dict] " + problem);
  CHECK(thrown<InvalidArgument>([&] { optimizer.load_state_dict({}); }) ==
        "[nn.optim.load_state_dict] " + problem);
}

TEST_CASE("the state of another optimizer is refused") {
  Reference reference;
  SGD sgd({reference.a}, {.lr = 1});
  AdamW adam({reference.a}, {});
  CHECK(thrown<InvalidArgument>([&] { adam.load_state_dict(sgd.state_dict()); }) ==
        "[nn.optim.load_state_dict] it is the state of SGD, and this is AdamW");
  CHECK(thrown<InvalidArgument>([&] { adam.load_state_dict({}); }) ==
        "[nn.optim.load_state_dict] it is the state of no optimizer (it is empty), and this is "
        "AdamW");
  StateDict run, model;
  model.set("up.weight", reference.a.local().tensor());
  CHECK(thrown<InvalidArgument>([&] { adam.load_state_dict(model); }) ==
        "[nn.optim.load_state_dict] it is the state of no optimizer (its first entry is "
        "\"up.weight\"), and this is AdamW");
  run.add("model.", model);
  run.add("optimizer.", adam.state_dict());
  CHECK(thrown<InvalidArgument>([&] { adam.load_state_dict(run); }) ==
        "[nn.optim.load_state_dict] it is the state of no optimizer (its first entry is "
        "\"model.up.weight\"; take saved.part(\"optimizer.\")), and this is AdamW");
}

TEST_CASE("every misfit of groups and parameters is named, in one error") {
  Reference reference;
  const Parameter c = make({1}, 3);
  SGD saving({{.parameters = {reference.a, c}, .options = {.lr = 1}},
              {.parameters = {reference.b}, .options = {.lr = 1}}});
  const Parameter d = make({1}, 4);
  SGD one({{.parameters = {reference.a, d}, .options = {.lr = 1}}});
  CHECK(thrown<InvalidArgument>([&] { one.load_state_dict(saving.state_dict()); }) ==
        std::string(kMisfit) +
            "SGD: it has 2 groups, not 1; the parameter \"p4\" is not in it; its parameter \"p3\" "
            "is not here; its parameter \"p2\" is not here");
  SGD swapped({{.parameters = {reference.b, c}, .options = {.lr = 1}},
               {.parameters = {reference.a}, .options = {.lr = 1}}});
  CHECK(thrown<InvalidArgument>([&] { swapped.load_state_dict(saving.state_dict()); }) ==
        std::string(kMisfit) +
            "SGD: the parameter \"p2\" is in its group 1, and here in 0; the parameter \"p1\" is "
            "in its group 0, and here in 1");
}

TEST_CASE("every misfit of options is named, in one error, and nothing is changed") {
  Reference reference;
  SGD optimizer({reference.a}, {.lr = 1});
  StateDict wrong = optimizer.state_dict();
  wrong.erase("groups.0.momentum");
  wrong.set("groups.0.nesterov", 1.0);
  wrong.set("groups.0.initial_lr", "fast");
  wrong.set("groups.0.speed", 1.0);
  wrong.set("colour", "red");
  CHECK(thrown<InvalidArgument>([&] { optimizer.load_state_dict(wrong); }) ==
        std::string(kMisfit) +
            "SGD: groups.0.initial_lr is not a number; groups.0.momentum is missing; "
            "groups.0.nesterov is a number, not a bool; groups.0.speed is no option of it; "
            "\"colour\" is unknown");
  StateDict outside = optimizer.state_dict();
  outside.set("groups.0.lr", -2.0);
  CHECK(thrown<InvalidArgument>([&] { optimizer.load_state_dict(outside); }) ==
        std::string(kMisfit) +
            "SGD: groups.0.[nn.optim.SGD] lr is -2; give one that is at least 0");
  CHECK(optimizer.lr() == 1);
  StateDict whole_number = optimizer.state_dict();
  whole_number.set("groups.0.lr", std::int64_t{3});  // as a file may write 3.0
  optimizer.load_state_dict(whole_number);
  CHECK(optimizer.lr() == 3);
}

TEST_CASE("every misfit of states is named, in one error") {
  Reference reference;
  SGD optimizer({reference.a, reference.b}, {.lr = 1, .momentum = 0.5});
  reference.step(optimizer, 1);
  StateDict wrong = optimizer.state_dict();
  wrong.set("state.p1.momentum", zeros({2}, kDouble));
  wrong.set("state.p1.step", 1.5);
  wrong.set("state.p1.exp_avg", zeros({3, 2}, kDouble));
  wrong.erase("state.p2.momentum");
  wrong.set("state.p2.step", std::int64_t{0});
  wrong.set("state.p9.momentum", zeros({2}, kDouble));
  wrong.set("state.short", 1.0);
  CHECK(thrown<InvalidArgument>([&] { optimizer.load_state_dict(wrong); }) ==
        std::string(kMisfit) +
            "SGD: state.p9.momentum belongs to no parameter here; state.short belongs to no "
            "parameter here; state.p1.step is a number, not an integer; state.p1.momentum is f64 "
            "[2], not f64 [3, 2]; state.p1.exp_avg is no state under the saved options; "
            "state.p2.step is 0; it is at least 1; state.p2.momentum is missing");
  StateDict kinds = optimizer.state_dict();
  kinds.set("state.p1.momentum", 2.0);
  kinds.set("state.p2.momentum", zeros({2, 4}));
  kinds.erase("state.p2.step");
  CHECK(thrown<InvalidArgument>([&] { optimizer.load_state_dict(kinds); }) ==
        std::string(kMisfit) +
            "SGD: state.p1.momentum is a number, not a tensor; state.p2.step is missing; "
            "state.p2.momentum is f32 [2, 4], not f64 [2, 4]");
  CHECK(optimizer.state(reference.b, "momentum").defined());
}

TEST_CASE("state without elements is refused, and nothing is changed") {
  Reference reference;
  SGD optimizer({reference.a}, {.lr = 1, .momentum = 0.5});
  reference.step(optimizer, 1);
  StateDict planned = optimizer.state_dict();
  planned.set("groups.0.lr", 2.0);
  planned.set("state.p1.momentum", zeros({3, 2}, {.dtype = DType::kF64, .device = kNull}));
  const std::vector<double> momentum = values(optimizer.state(reference.a, "momentum"));
  CHECK(thrown<InvalidArgument>([&] { optimizer.load_state_dict(planned); }) ==
        std::string(kMisfit) + "SGD: state.p1.momentum is on the null device: it has no elements");
  CHECK(optimizer.lr() == 1);
  CHECK(optimizer.steps(reference.a) == 1);
  CHECK(values(optimizer.state(reference.a, "momentum")) == momentum);
}

TEST_CASE("state goes to the device of its parameter") {
  Reference reference;
  SGD saving({reference.a}, {.lr = 1, .momentum = 0.5});
  reference.step(saving, 1);
  Parameter planned({.shape = {3, 2}, .dtype = DType::kF64, .init = nn::init::zeros()});
  planned.set_name("p1");
  planned.materialize(kNull);
  SGD loading({planned}, {.lr = 1, .momentum = 0.5});
  loading.load_state_dict(saving.state_dict());
  CHECK(loading.state(planned, "momentum").device() == kNull);
  CHECK(loading.steps(planned) == 1);
}

TEST_CASE("state is not loaded for a parameter without elements") {
  Reference reference;
  SGD saving({reference.a}, {.lr = 1, .momentum = 0.5});
  reference.step(saving, 1);
  Parameter empty({.shape = {3, 2}, .dtype = DType::kF64, .init = nn::init::zeros()});
  empty.set_name("p1");
  SGD loading({empty}, {.lr = 1, .momentum = 0.5});
  CHECK(thrown<InvalidArgument>([&] { loading.load_state_dict(saving.state_dict()); }) ==
        std::string(kMisfit) + "SGD: \"p1\" has no elements yet: call nn::initialize(model)");
}

}  // namespace
}  // namespace tessera
