// A step whose gradients count as multiplied by a number on their device: the bits of a step after
// multiplying them, for optimizers that apply it themselves and for others.
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/adamax.h"
#include "tessera/nn/optim/lion.h"
#include "tessera/nn/optim/muon.h"
#include "tessera/nn/optim/rmsprop.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/nn/training/grad_scaler.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/nn/optim/support.h"
#include "tessera/tests/support/close.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::optim::StepOptions;
using namespace testing;

using Parameters = std::vector<Parameter>;

struct Case {
  const char* name;
  bool applies;  // itself, so that gradients stay
  std::unique_ptr<nn::optim::Optimizer> (*build)(const Parameters&);
};

template <class Optimizer, class Options>
std::unique_ptr<nn::optim::Optimizer> built(const Parameters& parameters, const Options& options) {
  return std::make_unique<Optimizer>(parameters, options);
}

const Case kCases[] = {
    {"SGD", true,
     [](const Parameters& p) {
       return built<nn::optim::SGD>(p, nn::optim::SgdOptions{.lr = 0.1, .weight_decay = 0.1});
     }},
    {"SGD with momentum, maximizing", true,
     [](const Parameters& p) {
       return built<nn::optim::SGD>(
           p, nn::optim::SgdOptions{.lr = 0.1, .momentum = 0.9, .maximize = true});
     }},
    {"Adam", true,
     [](const Parameters& p) {
       return built<nn::optim::Adam>(p, nn::optim::AdamOptions{.weight_decay = 0.1});
     }},
    {"AdamW", true,
     [](const Parameters& p) {
       return built<nn::optim::AdamW>(p, nn::optim::AdamWOptions{.amsgrad = true});
     }},
    {"Lion", true,
     [](const Parameters& p) { return built<nn::optim::Lion>(p, nn::optim::LionOptions{}); }},
    {"RMSprop", false,
     [](const Parameters& p) { return built<nn::optim::RMSprop>(p, nn::optim::RMSpropOptions{}); }},
    {"Adamax", false,
     [](const Parameters& p) { return built<nn::optim::Adamax>(p, nn::optim::AdamaxOptions{}); }},
    {"Muon", false,
     [](const Parameters& p) { return built<nn::optim::Muon>(p, nn::optim::MuonOptions{}); }},
};

Parameters parameters_of(DType dtype) { return {make({3, 5}, 1, dtype), make({4, 2}, 2, dtype)}; }

void set_gradients(Parameters& parameters, std::uint64_t step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& p = parameters[i];
    p.set_grad(cast(random_gradient(p.shape(), 10 * step + i), p.dtype()));
  }
}

TEST_CASE("a gradient scale has the bits of gradients that were multiplied") {
  for (const Case& c : kCases) {
    for (DType dtype : {DType::kF64, DType::kF32}) {
      INFO(c.name << " " << dtype_name(dtype));
      Parameters scaled = parameters_of(dtype), plain = parameters_of(dtype);
      const auto optimizer = c.build(scaled), reference = c.build(plain);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const Tensor scale = full({}, 0.3 + 0.1 * static_cast<double>(step), kDouble);
        set_gradients(scaled, step);
        set_gradients(plain, step);
        const Tensor before = clone(scaled[0].grad());
        optimizer->step({.gradient_scale = scale});
        for (const Parameter& p : plain) mul_(p.grad(), scale);
        reference->step();
        CHECK(all_equal(scaled[0].grad(), c.applies ? before : plain[0].grad()));
        for (std::size_t i = 0; i < plain.size(); ++i)
          CHECK(all_equal(scaled[i].local().tensor(), plain[i].local().tensor()));
      }
      // The scale of one step is not that of the next.
      set_gradients(scaled, 9);
      set_gradients(plain, 9);
      optimizer->step();
      reference->step();
      CHECK(all_equal(scaled[1].local().tensor(), plain[1].local().tensor()));
    }
  }
}

TEST_CASE("gradients of 16 bits are not rounded again by a gradient scale") {
  Parameter p = make({1}, 1, DType::kBF16);
  copy_(p.local().tensor(), full({1}, -0x1.04p0));
  nn::optim::SGD optimizer({p}, {.lr = 1});
  p.set_grad(full({1}, -0x1.02p0, {.dtype = DType::kBF16}));
  optimizer.step({.gradient_scale = full({}, 0x1.02p0, kDouble)});
  // The product is 1 + 2^-6 + 2^-14, which bf16 does not hold.
  CHECK(values(cast(p.local().tensor(), DType::kF64))[0] == 0x1p-14);
}

TEST_CASE("clip_coefficient: what clip_grad_norm multiplies by") {
  for (double max_norm : {0.0, 0.5, 1e6}) {
    Parameters scaled = parameters_of(DType::kF64), plain = parameters_of(DType::kF64);
    nn::optim::SGD optimizer(scaled, {.lr = 1}), reference(plain, {.lr = 1});
    set_gradients(scaled, 1);
    set_gradients(plain, 1);
    const Tensor norm = nn::grad_norm(scaled);
    const Tensor coefficient = nn::clip_coefficient(max_norm, norm);
    const double n = norm.item<double>();
    CHECK(coefficient.item<double>() == std::min(1.0, max_norm / (n + 1e-6)));
    optimizer.step({.gradient_scale = coefficient});
    nn::clip_grad_norm(plain, max_norm);
    reference.step();
    for (std::size_t i = 0; i < plain.size(); ++i)
      CHECK(all_equal(scaled[i].local().tensor(), plain[i].local().tensor()));
  }
  CHECK(thrown<InvalidArgument>([] { nn::clip_coefficient(-1, ones({}, kDouble)); }) ==
        "[nn.clip_coefficient] max_norm is -1; it is at least 0");
}

TEST_CASE("a gradient scale passes through the loss scaler") {
  for (const bool enabled : {false, true}) {
    Parameters scaled = parameters_of(DType::kF32), plain = parameters_of(DType::kF32);
    nn::optim::SGD optimizer(scaled, {.lr = 1}), reference(plain, {.lr = 1});
    nn::GradScaler scaler({.init_scale = 4, .enabled = enabled});
    set_gradients(scaled, 1);
    set_gradients(plain, 1);
    CHECK(scaler.step(optimizer, {.gradient_scale = full({}, 0.5, kDouble)}));
    for (const Parameter& p : plain) mul_(p.grad(), enabled ? 0.125 : 0.5);
    reference.step();
    for (std::size_t i = 0; i < plain.size(); ++i)
      CHECK(all_equal(scaled[i].local().tensor(), plain[i].local().tensor()));
  }
}

TEST_CASE("a gradient scale that is no 0-d f64 is refused, with everything as it was") {
  Parameter p = make({3}, 1);
  nn::optim::SGD optimizer({p}, {.lr = 1, .momentum = 0.9});
  p.set_grad(ones({3}, kDouble));
  const std::vector<double> before = local_values(p);
  CHECK(thrown<InvalidArgument>([&] { optimizer.step({.gradient_scale = ones({1}, kDouble)}); }) ==
        "[sgd_step] the gradient scale is f64 [1]; it must be 0-d f64");
  CHECK(thrown<InvalidArgument>([&] { optimizer.step({.gradient_scale = ones({})}); }) ==
        "[sgd_step] the gradient scale is f32 []; it must be 0-d f64");
  CHECK(local_values(p) == before);
  CHECK_FALSE(optimizer.state(p, "momentum").defined());
}

}  // namespace
}  // namespace tessera
