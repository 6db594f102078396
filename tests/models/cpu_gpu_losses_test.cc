// A model trains the same on the CPU and on a GPU: from equal seeds and batches in f32, the losses
// of 50 steps agree within 1e-4.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/random.h"

namespace tessera::models {
namespace {

constexpr int kSteps = 50;
constexpr std::int64_t kRows = 7, kFeatures = 12, kClasses = 5;
constexpr int kBatches = 4;  // each is used repeatedly, so the model can learn
constexpr Device kGpu{DeviceType::kCuda, 0};

struct Batch {
  Tensor x;
  Tensor targets;
};

Batch batch(int step, Device device) {
  const auto seed = static_cast<std::uint64_t>(step % kBatches);
  const Tensor x = Tensor::empty({kRows, kFeatures}, {.device = kCpu});
  random::fill_normal(x, random::named_key(seed, "x"), random::whole(x.shape()), 0, 1);
  const Tensor targets = Tensor::empty({kRows}, {.dtype = DType::kI64, .device = kCpu});
  random::fill_integers(targets, random::named_key(seed, "targets"), random::whole(targets.shape()),
                        0, kClasses);
  return {.x = to_device(x, device), .targets = to_device(targets, device)};
}

struct Training {
  Activation activation = Activation::kGelu;
  bool adam = false;
};

std::unique_ptr<nn::optim::Optimizer> make_optimizer(const Training& training, MlpStack& model) {
  if (training.adam)
    return std::make_unique<nn::optim::AdamW>(model.parameters(),
                                              nn::optim::AdamWOptions{.lr = 3e-3});
  return std::make_unique<nn::optim::SGD>(
      model.parameters(), nn::optim::SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4});
}

std::vector<double> losses(const Training& training, Device device) {
  const DefaultDeviceScope here(device);
  MlpStack model({.in = kFeatures,
                  .hidden = {33, 33},
                  .classes = kClasses,
                  .activation = training.activation});
  nn::initialize(model, {.seed = 11, .device = device});
  const auto optimizer = make_optimizer(training, model);
  std::vector<double> out;
  for (int step = 0; step < kSteps; ++step) {
    const Batch data = batch(step, device);
    const Variable loss = cross_entropy(model(Variable(data.x)), data.targets);
    backward(loss);
    optimizer->step();
    optimizer->zero_grad();
    out.push_back(loss.item<float>());
  }
  return out;
}

TEST_CASE("the losses of 50 steps on a GPU are those of the CPU within 1e-4", "[gpu]") {
  const auto training =
      GENERATE(Training{.activation = Activation::kGelu}, Training{.activation = Activation::kRelu},
               Training{.activation = Activation::kGelu, .adam = true});
  INFO(activation_name(training.activation) << (training.adam ? ", AdamW" : ", SGD"));
  const std::vector<double> on_cpu = losses(training, kCpu), on_gpu = losses(training, kGpu);
  REQUIRE(on_gpu.size() == kSteps);
  CHECK(on_cpu.back() < 0.8 * on_cpu.front());  // it learns
  for (std::size_t step = 0; step < on_cpu.size(); ++step) {
    INFO("step " << step + 1 << ": " << on_gpu[step] << ", on the CPU " << on_cpu[step]);
    CHECK(std::abs(on_gpu[step] - on_cpu[step]) <= 1e-4);
  }
}

}  // namespace
}  // namespace tessera::models
