// A small MLP with sharded parameters: mlp_example --ranks 4 --launch threads

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

class Mlp final : public nn::Layer<Mlp> {
 public:
  explicit Mlp(int64_t dim) : up_({.in = dim, .out = 4 * dim}), down_({.in = 4 * dim, .out = dim}) {
    register_module("up", up_);
    register_module("down", down_);
  }
  Variable forward(const Variable& x) { return down_(gelu(up_(x))); }

 private:
  nn::Linear up_, down_;
};

// Points classified by their largest coordinate: the same number on each rank, other points in each
// step.
struct Batch {
  Variable points;
  Tensor labels;
};
Batch make_batch(int rank, int step) {
  const Tensor points = Tensor::empty({64, 16});
  const random::Key key = random::named_key(1, "batch " + std::to_string(step));
  random::fill_normal(points, key, {.global = {64 * (rank + 1), 16}, .offset = {64 * rank, 0}}, 0,
                      1);
  return {.points = Variable(points), .labels = argmax(points)};
}

int main(int argc, char** argv) {
  return distributed::launch(argc, argv, [](distributed::World& world) {
    Mlp model(16);
    fsdp::fully_shard(model, {.mesh = world.mesh()});
    nn::initialize(model, {.seed = 1, .device = world.device()});
    nn::optim::SGD optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
    for (int step = 1; step <= 100; ++step) {
      const auto [points, labels] = make_batch(world.rank(), step);
      const Variable loss = cross_entropy(model(points), labels);
      backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      if (world.rank() == 0 && step % 20 == 0)
        std::printf("step %d: loss %.4f\n", step, loss.item<float>());
    }
  });
}
