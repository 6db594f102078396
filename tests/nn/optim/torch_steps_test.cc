// Twenty steps of every optimizer that PyTorch has, two groups each, against what PyTorch computes.
#include <catch2/catch.hpp>
#include <cmath>
#include <utility>

#include "tessera/nn/optim/adadelta.h"
#include "tessera/nn/optim/adafactor.h"
#include "tessera/nn/optim/adagrad.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/adamax.h"
#include "tessera/nn/optim/muon.h"
#include "tessera/nn/optim/nadam.h"
#include "tessera/nn/optim/radam.h"
#include "tessera/nn/optim/rmsprop.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/optim/support.h"
#include "tessera/tests/nn/optim/torch_values.h"

namespace tessera {
namespace {

using nn::Parameter;
using namespace testing;

template <class Function>
Tensor from_place(const Shape& shape, const Function& function) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < shape.numel(); ++i) out.push_back(function(static_cast<double>(i)));
  return Tensor::from_vector(out, shape);
}

Parameter start(const Shape& shape) {
  Parameter p({.shape = shape,
               .dtype = DType::kF64,
               .init = [](const Tensor& out, random::Key, const random::Box&) {
                 copy_(out, from_place(out.shape(), [](double i) { return std::cos(1 + i); }));
               }});
  p.materialize(default_device());
  p.reset({.value = 0});
  return p;
}

// The distance of both parameters from `expected` after 20 steps.
template <class Optimizer, class Options>
double after_20_steps(const Options& options, const Shape& second,
                      const std::vector<double>& expected) {
  std::vector<Parameter> parameters = {start({3, 2}), start(second)};
  Options changed = options;
  changed.lr = options.lr / 2;
  changed.weight_decay = 0;
  Optimizer optimizer({{.parameters = {parameters[0]}, .options = options},
                       {.parameters = {parameters[1]}, .options = changed}});
  for (int step = 0; step < 20; ++step) {
    for (Parameter& parameter : parameters) {
      parameter.set_grad(from_place(
          parameter.shape(), [&](double i) { return std::sin(0.7 * (i + 1) + 0.3 * step); }));
    }
    optimizer.step();
  }
  std::vector<double> got = local_values(parameters[0]);
  for (double x : local_values(parameters[1])) got.push_back(x);
  return distance(got, expected);
}

constexpr double kClose = 1e-12;

TEST_CASE("20 steps of SGD are PyTorch's") {
  const auto run = [](const nn::optim::SgdOptions& options, const std::vector<double>& expected) {
    return after_20_steps<nn::optim::SGD>(options, {4}, expected);
  };
  CHECK(run({.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05},
            torch::sgd_dampening) < kClose);
  CHECK(run({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .nesterov = true, .maximize = true},
            torch::sgd_nesterov) < kClose);
}

TEST_CASE("20 steps of Adam are PyTorch's") {
  const auto run = [](const nn::optim::AdamOptions& options, const std::vector<double>& expected) {
    return after_20_steps<nn::optim::Adam>(options, {4}, expected);
  };
  CHECK(run({.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.05}, torch::adam) <
        kClose);
  CHECK(run({.lr = 0.02,
             .betas = {0.8, 0.6},
             .weight_decay = 0.05,
             .amsgrad = true,
             .maximize = true},
            torch::adam_amsgrad) < kClose);
}

TEST_CASE("20 steps of AdamW are PyTorch's") {
  const auto run = [](const nn::optim::AdamWOptions& options, const std::vector<double>& expected) {
    return after_20_steps<nn::optim::AdamW>(options, {4}, expected);
  };
  CHECK(run({.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6}, torch::adamw) < kClose);
  CHECK(
      run({.lr = 0.02, .betas = {0.8, 0.6}, .weight_decay = 0.1, .amsgrad = true, .maximize = true},
          torch::adamw_amsgrad) < kClose);
}

TEST_CASE("20 steps of Muon are PyTorch's") {
  const auto run = [](const nn::optim::MuonOptions& options, const std::vector<double>& expected) {
    return after_20_steps<nn::optim::Muon>(options, {2, 3}, expected);
  };
  CHECK(run({.lr = 0.02}, torch::muon) < kClose);
  CHECK(run({.lr = 0.02,
             .weight_decay = 0.3,
             .momentum = 0.8,
             .nesterov = false,
             .newton_schulz = {.steps = 3}},
            torch::muon_plain) < kClose);
  CHECK(run({.lr = 0.02, .match_rms_adamw = true}, torch::muon_rms) < kClose);
}

TEST_CASE("20 steps of RMSprop, Adagrad and Adadelta are PyTorch's") {
  using namespace nn::optim;
  const auto rmsprop = [](const RMSpropOptions& options, const std::vector<double>& expected) {
    return after_20_steps<RMSprop>(options, {4}, expected);
  };
  CHECK(rmsprop({.lr = 0.02, .alpha = 0.9, .eps = 1e-6, .weight_decay = 0.05}, torch::rmsprop) <
        kClose);
  CHECK(rmsprop(
            {.lr = 0.02, .weight_decay = 0.05, .momentum = 0.8, .centered = true, .maximize = true},
            torch::rmsprop_centered) < kClose);
  const auto adagrad = [](const AdagradOptions& options, const std::vector<double>& expected) {
    return after_20_steps<Adagrad>(options, {4}, expected);
  };
  CHECK(adagrad({.lr = 0.1, .lr_decay = 0.02, .weight_decay = 0.05}, torch::adagrad) < kClose);
  CHECK(adagrad({.lr = 0.1,
                 .weight_decay = 0.05,
                 .initial_accumulator_value = 0.3,
                 .eps = 1e-3,
                 .maximize = true},
                torch::adagrad_start) < kClose);
  CHECK(after_20_steps<Adadelta>(
            AdadeltaOptions{.lr = 2, .rho = 0.8, .eps = 1e-4, .weight_decay = 0.05}, {4},
            torch::adadelta) < kClose);
}

TEST_CASE("20 steps of Adamax, NAdam and RAdam are PyTorch's") {
  using namespace nn::optim;
  CHECK(after_20_steps<Adamax>(
            AdamaxOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05}, {4},
            torch::adamax) < kClose);
  constexpr double kMuOfF32 = 1e-8;  // PyTorch keeps the product of the mu in f32
  const auto nadam = [](const NAdamOptions& options, const std::vector<double>& expected) {
    return after_20_steps<NAdam>(options, {4}, expected);
  };
  CHECK(nadam({.lr = 0.02,
               .betas = {0.8, 0.95},
               .eps = 1e-6,
               .weight_decay = 0.05,
               .momentum_decay = 0.1},
              torch::nadam) < kMuOfF32);
  CHECK(nadam({.lr = 0.02, .weight_decay = 0.3, .decoupled_weight_decay = true, .maximize = true},
              torch::nadam_decoupled) < kMuOfF32);
  const auto radam = [](const RAdamOptions& options, const std::vector<double>& expected) {
    return after_20_steps<RAdam>(options, {4}, expected);
  };
  CHECK(radam({.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.05}, torch::radam) <
        kClose);
  CHECK(radam({.lr = 0.02, .weight_decay = 0.3, .decoupled_weight_decay = true, .maximize = true},
              torch::radam_decoupled) < kClose);
}

TEST_CASE("20 steps of Adafactor are PyTorch's") {
  using namespace nn::optim;
  CHECK(after_20_steps<Adafactor>(AdafactorOptions{.lr = 0.3, .weight_decay = 0.1}, {4},
                                  torch::adafactor) < kClose);
  CHECK(after_20_steps<Adafactor>(
            AdafactorOptions{
                .lr = 0.2, .beta2_decay = -0.5, .eps1 = 0.3, .eps2 = 2, .d = 1.5, .maximize = true},
            {2, 2, 2}, torch::adafactor_eps) < kClose);
}

}  // namespace
}  // namespace tessera
