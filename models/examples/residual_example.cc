// A residual network on Fashion-MNIST, sharded and in bf16, with a training loop of its own:
// augmented images, clipped gradients, a schedule, evaluation over all ranks, the weights as a file.
//
//     residual_example --images 2000 --epochs 3 --ranks 2

#include <algorithm>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;
using namespace nn::data;

class ResidualBlock final : public nn::Layer<ResidualBlock> {
 public:
  ResidualBlock(int64_t in, int64_t out, int64_t stride)
      : conv1_({.in = in, .out = out, .kernel = 3, .stride = stride, .padding = 1, .bias = false}),
        norm1_({.channels = out}),
        conv2_({.in = out, .out = out, .kernel = 3, .padding = 1, .bias = false}),
        norm2_({.channels = out}),
        skip_({.in = in, .out = out, .kernel = 1, .stride = stride, .bias = false}) {
    register_module("conv1", conv1_);
    register_module("norm1", norm1_);
    register_module("conv2", conv2_);
    register_module("norm2", norm2_);
    register_module("skip", skip_);
  }
  Variable forward(const Variable& x) {
    return relu(norm2_(conv2_(relu(norm1_(conv1_(x))))) + skip_(x));
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
  nn::Conv2d skip_;
};

void train(distributed::World& world, int64_t images, int64_t epochs) {
  models::data::FashionMnist data =
      models::data::read_fashion_mnist(models::data::kFashionMnistFolder);
  data.train.labels.resize(images);
  data.test.labels.resize(std::min<size_t>(images, data.test.labels.size()));
  const Normalize normalize({0.286}, {0.353});
  const Compose augment{RandomCrop({.size = 28, .padding = 2}), RandomHorizontalFlip(), normalize};
  DataLoaderOptions options{.batch_size = 64, .shuffle = true, .workers = 1};
  options.ranks = world.size(), options.rank = world.rank();
  DataLoader batches(Transformed(data.train, augment), options);
  options.shuffle = options.pad = false;
  DataLoader test_batches(Transformed(data.test, normalize), options);

  nn::Sequential model;
  model.add<ResidualBlock>(1, 16, 1);
  model.add<ResidualBlock>(16, 32, 2);
  model.add<ResidualBlock>(32, 64, 2);
  model.add([](const Variable& x) { return mean(x, {2, 3}); });
  model.add<nn::Linear>({.in = 64, .out = 10});
  nn::synchronize_batch_norms(model, world.mesh());
  const fsdp::MixedPrecision bf16{.param_dtype = DType::kBF16, .exempt = fsdp::is_norm};
  for (int block : {0, 1, 2})
    fsdp::fully_shard(model.at(block), {.mesh = world.mesh(), .mixed_precision = bf16});
  fsdp::fully_shard(model, {.mesh = world.mesh(), .mixed_precision = bf16});
  nn::initialize(model, {.seed = 1, .device = world.device()});
  nn::optim::SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4});
  const int64_t steps = epochs * batches.size();
  nn::optim::LrScheduler schedule(
      optimizer, nn::optim::warm_up_cosine({.warm_up = steps / 10, .steps = steps}));
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    nn::RunningMean losses, correct;
    for (const auto& [pixels, labels] : batches) {
      const Variable loss = cross_entropy(model(Variable(pixels)), labels);
      backward(loss);
      nn::clip_grad_norm(model.parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
      schedule.step();
      losses.add(loss);
    }
    const models::EvalScope evaluation(model);
    for (const auto& [pixels, labels] : test_batches)
      correct.add(nn::accuracy(model(Variable(pixels)), labels), labels.numel());
    losses = losses.over_ranks(world.mesh()), correct = correct.over_ranks(world.mesh());
    if (world.rank() == 0)
      std::printf("%d: loss %.3f, accuracy %.4f\n", int(epoch), losses.mean(), correct.mean());
  }
  fsdp::save_full_state("residual.safetensors", model);  // rank 0 writes what all ranks send
}

int main(int argc, char** argv) {
  int64_t images = 60000, epochs = 5;
  return distributed::launch(
      argc, argv, [&](distributed::World& world) { train(world, images, epochs); },
      {{"--images", "N  of the training set", &images}, {"--epochs", "N  over them", &epochs}});
}
