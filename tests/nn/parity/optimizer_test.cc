// A small net trains under each optimizer as under PyTorch's. Lion's reference is its formula;
// Muon's is PyTorch's code, computed in the parameters' dtype instead of bf16.

#include <cmath>
#include <cstdio>
#include <limits>

#include <catch2/catch.hpp>

#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/ema.h"
#include "tessera/nn/optim/lion.h"
#include "tessera/nn/optim/muon.h"
#include "tessera/nn/optim/parameter_group.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

namespace optim = nn::optim;
using testing::TrainedModel;

// What a step does, for a model of its own.
using MakeUpdate = std::function<std::function<void()>(nn::Module&)>;

void check(const std::string& name, const MakeUpdate& make_update, bool bias = true) {
  const auto net = testing::sequence_on_x([bias](nn::Sequential& layers) {
    layers.add<nn::Linear>({.in = 5, .out = 8, .bias = bias});
    layers.add<nn::GELU>();
    layers.add<nn::Linear>({.in = 8, .out = 3, .bias = bias});
  });
  const testing::MakeModel make = [net, make_update] {
    TrainedModel out = net();
    out.update = make_update(*out.module);
    return out;
  };
  check_training("optimizer", name, make);
}

template <class Optimizer, class Options>
MakeUpdate of(const Options& options) {
  return [options](nn::Module& model) {
    const auto optimizer = std::make_shared<Optimizer>(model.parameters(), options);
    return [optimizer] { optimizer->step(); };
  };
}

TEST_CASE("parity: SGD") {
  const auto sgd = of<optim::SGD, optim::SgdOptions>;
  check("SGD", sgd({.lr = 0.25}));
  check("SGD, nesterov, weight decay",
        sgd({.lr = 0.125, .momentum = 0.75, .weight_decay = 0.125, .nesterov = true}));
  check("SGD, dampening", sgd({.lr = 0.25, .momentum = 0.75, .dampening = 0.25}));
  check("SGD, maximize", sgd({.lr = 0.03125, .momentum = 0.5, .maximize = true}));
}

TEST_CASE("parity: Adam and AdamW") {
  const auto adam = of<optim::Adam, optim::AdamOptions>;
  check("Adam", adam({.lr = 0.03125}));
  check("Adam, weight decay",
        adam({.lr = 0.03125, .betas = {0.75, 0.9375}, .eps = 1e-4, .weight_decay = 0.125}));
  check("Adam, amsgrad", adam({.lr = 0.03125, .betas = {0.75, 0.75}, .amsgrad = true}));
  const auto adamw = of<optim::AdamW, optim::AdamWOptions>;
  check("AdamW", adamw({.lr = 0.03125, .weight_decay = 0.25}));
  check("AdamW, amsgrad",
        adamw({.lr = 0.03125, .betas = {0.75, 0.75}, .weight_decay = 0.25, .amsgrad = true}));
}

TEST_CASE("parity: Lion") {
  check("Lion", of<optim::Lion>(optim::LionOptions{
                    .lr = 0.0078125, .betas = {0.75, 0.875}, .weight_decay = 0.25}));
}

TEST_CASE("parity: Muon") {
  const auto muon = of<optim::Muon, optim::MuonOptions>;
  check("Muon", muon({.lr = 0.03125}), false);
  check("Muon, plain momentum, rates as AdamW's",
        muon({.lr = 0.0625,
              .weight_decay = 0.25,
              .momentum = 0.75,
              .nesterov = false,
              .match_rms_adamw = true}),
        false);
}

TEST_CASE("parity: parameter groups") {
  check("parameter groups", [](nn::Module& model) {
    const auto [weights, biases] = optim::group_parameters(model, optim::min_dims(2));
    using Group = optim::AdamW::Group;
    const auto adamw = std::make_shared<optim::AdamW>(
        std::vector<Group>{{.parameters = weights, .options = {.lr = 0.03125, .weight_decay = 0.5}},
                           {.parameters = biases, .options = {.lr = 0.0625, .weight_decay = 0}}});
    return [adamw] { adamw->step(); };
  });
}

// SGD after `clip`, which has the model's parameters.
template <class Clip>
MakeUpdate clipped(Clip clip) {
  return [clip](nn::Module& model) {
    const std::vector<nn::Parameter> parameters = model.parameters();
    const auto sgd =
        std::make_shared<optim::SGD>(parameters, optim::SgdOptions{.lr = 0.25, .momentum = 0.5});
    return [=] {
      clip(parameters);
      sgd->step();
    };
  };
}
MakeUpdate clipped_by_norm(double max_norm, double norm_type) {
  return clipped([=](const std::vector<nn::Parameter>& parameters) {
    nn::clip_grad_norm(parameters, max_norm, {.norm_type = norm_type});
  });
}

TEST_CASE("parity: clipping") {
  check("clipped by norm 2", clipped_by_norm(0.25, 2));
  check("clipped by norm 1", clipped_by_norm(1.5, 1));
  check("clipped by norm 3", clipped_by_norm(0.1875, 3));
  check("clipped by the largest element",
        clipped_by_norm(0.125, std::numeric_limits<double>::infinity()));
  check("clipped by value", clipped([](const std::vector<nn::Parameter>& parameters) {
          nn::clip_grad_value(parameters, 0.125);
        }));
}

TEST_CASE("parity: a schedule") {
  check("cosine schedule", [](nn::Module& model) {
    const auto adamw =
        std::make_shared<optim::AdamW>(model.parameters(), optim::AdamWOptions{.lr = 0.0625});
    const auto scheduler =
        std::make_shared<optim::LrScheduler>(*adamw, optim::cosine({.to = 1.0 / 16, .steps = 15}));
    return [adamw, scheduler] {
      adamw->step();
      scheduler->step();
    };
  });
}

TEST_CASE("parity: a moving average") {
  check("moving average", [](nn::Module& model) {
    const auto sgd =
        std::make_shared<optim::SGD>(model.parameters(), optim::SgdOptions{.lr = 0.25});
    const auto ema =
        std::make_shared<optim::Ema>(model.parameters(), optim::EmaOptions{.decay = 0.75});
    return [sgd, ema] {
      sgd->step();
      ema->update();
      if (ema->updates() == testing::kTrainingSteps) ema->copy_to(ema->parameters());
    };
  });
}

}  // namespace

namespace {

// Schedules give the learning rates that PyTorch's give, or, for warm-up, stable, decay, the
// formula.
namespace optim = nn::optim;

TEST_CASE("parity: schedules") {
  using optim::WsdDecay;
  const auto wsd = [](WsdDecay shape) {
    return optim::wsd({.warm_up = 4, .stable = 7, .decay = 6, .to = 0.125, .shape = shape});
  };
  const std::map<std::string, optim::Schedule> schedules{
      {"constant", optim::constant(0.25)},
      {"warm up", optim::warm_up(6)},
      {"linear", optim::linear({.from = 1, .to = 0.125, .steps = 12})},
      {"cosine", optim::cosine({.to = 0.125, .steps = 20})},
      {"cosine, then still", optim::cosine({.to = 0.125, .steps = 11})},
      {"steps", optim::step_decay({.every = 6, .gamma = 0.5})},
      {"warm up, then cosine", optim::warm_up_cosine({.warm_up = 5, .steps = 20})},
      {"product", optim::product({optim::linear({.from = 0.25, .to = 1, .steps = 6}),
                                  optim::step_decay({.every = 5, .gamma = 0.5})})},
      {"warm up, stable, decay: linear", wsd(WsdDecay::kLinear)},
      {"warm up, stable, decay: cosine", wsd(WsdDecay::kCosine)},
      {"warm up, stable, decay: square root", wsd(WsdDecay::kSquareRoot)},
  };
  const std::map<std::string, std::vector<double>> expected = testing::load_schedules();
  CHECK(expected.size() == schedules.size());
  for (const auto& [name, schedule] : schedules) {
    INFO(name);
    const std::vector<double>& rates = expected.at(name);
    double worst = 0;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      worst = std::max(worst, std::abs(schedule(static_cast<std::int64_t>(i)) - rates[i]));
    }
    std::printf("parity | schedule | %s | %.1e | -\n", name.c_str(), worst);
    CHECK(rates.size() == testing::kTrainingSteps);
    CHECK(worst <= 1e-9);
  }
}

}  // namespace
}  // namespace tessera
