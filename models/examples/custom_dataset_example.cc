// A user-defined data set for the Trainer. A Task defines the samples of a step, this rank's part
// of them, and their loss; here a DataLoader chooses the samples. The result is the same on any
// number of ranks, even if it does not divide the batch.
//
//     custom_dataset_example --ranks 3 --launch threads

#include <cmath>
#include <cstdio>
#include <utility>

#include "tessera/tessera.h"

using namespace tessera;

// Points on the two arms of a spiral, and the arm. Even samples are for training, odd ones for
// evaluation. Computed by a formula here; get() could read a file.
struct SpiralPoints {
  static constexpr int64_t kSamples = 600;  // of each kind
  int64_t kind = 0;

  int64_t size() const { return kSamples; }
  std::pair<Tensor, int64_t> get(int64_t index) const {
    const double along = std::fmod(static_cast<double>(2 * index + kind) * 0.6180339887, 1.0);
    const int64_t arm = index % 2;
    const double angle = 6 * along + 3.14159265 * static_cast<double>(arm);
    const auto x = static_cast<float>((0.2 + along) * std::cos(angle)),
               y = static_cast<float>((0.2 + along) * std::sin(angle));
    return {Tensor::from_vector<float>({x, y}, {2}, kCpu), arm};
  }
};

class Spirals final : public models::Task {
 public:
  Spirals(distributed::World& world, models::MlpStack& model, int64_t batch)
      : model_(model),
        loader_(SpiralPoints{}, {.batch_size = batch,
                                 .shuffle = true,
                                 .pad = false,
                                 .ranks = world.size(),
                                 .rank = world.rank()}) {}

  nn::Module& module() override { return model_; }
  int64_t steps_per_epoch() const override { return loader_.size(); }
  models::BatchShare load(int64_t step) override {
    batch_ = loader_.load(step);
    return models::share_at(loader_.position());
  }
  models::LossSum loss(int64_t begin, int64_t end) override {
    const Variable points(batch_.first.narrow(0, begin, end - begin));
    const Tensor arms = batch_.second.narrow(0, begin, end - begin);
    return {.sum = cross_entropy(model_(points), arms, LossReduction::kSum)};
  }
  // The set is small, so every rank evaluates all of it.
  models::EvalMetrics evaluate() override {
    const models::EvalScope scope(model_);
    nn::data::DataLoader all(SpiralPoints{.kind = 1}, {.batch_size = SpiralPoints::kSamples});
    const auto [points, arms] = all.load(1);
    const Variable logits = model_(Variable(points));
    return {.loss = cross_entropy(logits, arms).item<float>(),
            .accuracy = nn::accuracy(logits, arms).item<float>()};
  }

 private:
  models::MlpStack& model_;
  nn::data::DataLoader<SpiralPoints> loader_;
  std::pair<Tensor, Tensor> batch_;  // of this rank and step: points [rows, 2], arms [rows]
};

void train(distributed::World& world) {
  models::MlpStack model({.in = 2, .hidden = {32, 32}, .classes = 2});
  models::parallelize(model, {.mesh = world.mesh()});
  nn::initialize(model, {.seed = 1});
  Spirals task(world, model, /*batch=*/50);
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
  models::Trainer trainer(world, task, optimizer);
  for (int step = 1; step <= 30 * task.steps_per_epoch(); ++step) {
    const models::StepMetrics metrics = trainer.step();
    if (world.rank() == 0 && step % 90 == 0)
      std::printf("step %d: loss %.4f\n", step, metrics.loss);
  }
  const double accuracy = *trainer.evaluate().accuracy;
  if (world.rank() == 0) std::printf("%.1f %% of new points are right\n", 100 * accuracy);
  TESSERA_CHECK(accuracy > 0.98, "example", "only {:.3f} of the points are right", accuracy);
}

int main(int argc, char** argv) { return distributed::launch(argc, argv, train); }
