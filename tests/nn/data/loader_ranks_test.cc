// A training loop of a user on several ranks: sharded model, loader, accuracy, running means.
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/data/data_loader.h"
#include "tessera/nn/data/datasets.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/accuracy.h"
#include "tessera/nn/training/loss.h"
#include "tessera/nn/training/running_mean.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::nn::data {
namespace {

constexpr std::int64_t kSamples = 23, kBatch = 6;

// Points with noise that is drawn anew in each epoch, and their signs.
struct Points {
  std::int64_t size() const { return kSamples; }
  std::pair<Tensor, std::int64_t> get(std::int64_t index) const {
    const double x = std::sin(static_cast<double>(index));
    const Tensor noise = rand({3}, {.dtype = DType::kF64});
    return {add(mul(noise, 0.1), x), x > 0 ? 1 : 0};
  }
};

struct Result {
  std::vector<double> losses;
  double accuracy = 0;
};

// On one rank alone if `world` is null.
Result train(distributed::World* world, int workers, Device device) {
  Linear model({.in = 3, .out = 2, .dtype = DType::kF64});
  const auto mesh = world ? distributed::make_mesh(world->mesh()) : local_mesh();
  if (world) fsdp::fully_shard(model, {.mesh = world->mesh()});
  initialize(model, {.seed = 1, .device = device});
  optim::SGD optimizer(model.parameters(), {.lr = 0.5});
  DataLoader loader(Points(), {.batch_size = kBatch,
                               .shuffle = true,
                               .pad = false,
                               .workers = workers,
                               .ranks = world ? world->size() : 1,
                               .rank = world ? world->rank() : 0,
                               .device = device});
  Result result;
  for (int epoch = 0; epoch < 3; ++epoch) {
    RunningMean loss_mean, right;
    for (auto [points, labels] : loader) {
      const Variable logits = model(Variable(points));
      const Variable loss = cross_entropy(logits, labels, LossReduction::kSum);
      backward(global_mean(loss, labels.dim(0), mesh));
      optimizer.step();
      optimizer.zero_grad();
      loss_mean.add_sum(loss.item<double>(), static_cast<double>(labels.dim(0)));
      right.add(accuracy(logits, labels), static_cast<double>(labels.dim(0)));
    }
    const RunningMean all = loss_mean.over_ranks(mesh, "data", device);
    TESSERA_CHECK(all.count() == kSamples, "test", "{} samples in an epoch", all.count());
    result.losses.push_back(all.mean());
    result.accuracy = right.over_ranks(mesh, "data", device).mean();
  }
  return result;
}

TESSERA_RANK_TEST("a training loop has the same losses on any number of ranks", "[data]") {
  const Device device = t.world().device();
  const Result alone = train(nullptr, 0, device);
  t.check(alone.losses[2] < alone.losses[0], "{} to {}", alone.losses[0], alone.losses[2]);
  std::string bits;
  for (const int workers : {0, 2}) {
    const Result result = train(&t.world(), workers, device);
    for (std::size_t epoch = 0; epoch < 3; ++epoch)
      t.check(std::abs(result.losses[epoch] - alone.losses[epoch]) < 1e-12,
              "epoch {}: loss {:.17g}, alone {:.17g}", epoch, result.losses[epoch],
              alone.losses[epoch]);
    t.check(std::abs(result.accuracy - alone.accuracy) < 1e-6, "accuracy {}, alone {}",
            result.accuracy, alone.accuracy);
    const std::string now = fmt::format("{:a} {:a} {:a} {:a}", result.losses[0], result.losses[1],
                                        result.losses[2], result.accuracy);
    t.check(workers == 0 || now == bits, "{} with workers, {} without", now, bits);
    bits = now;
  }
  t.check_same_on_all_ranks(bits, "losses");
}

}  // namespace
}  // namespace tessera::nn::data
