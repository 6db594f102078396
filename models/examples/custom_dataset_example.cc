// A user-defined data set for the Trainer. A Task defines the samples of a step, this rank's part
// of them, and their loss. The result is the same on any number of ranks, even if it does not
// divide the batch.
//
//     custom_dataset_example --ranks 3 --launch threads

#include <cmath>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

// Classification of points on the two arms of a spiral. Even samples are for training, odd ones for
// evaluation.
class Spirals final : public models::Task {
 public:
  static constexpr int64_t kSamples = 600;  // of each kind

  Spirals(distributed::World& world, models::MlpStack& model, int64_t batch)
      : world_(world), model_(model), order_(kSamples, batch, /*seed=*/1) {}

  nn::Module& module() override { return model_; }
  int64_t steps_per_epoch() const override { return order_.steps_per_epoch(); }

  models::BatchShare load(int64_t step) override {
    const std::span<const int64_t> all = order_.samples_of(step);
    const auto count = static_cast<int64_t>(all.size());
    const auto mine = distributed::chunk_of(count, world_.size(), world_.rank());
    samples_.clear();
    for (int64_t i = mine.begin; i < mine.end; ++i) samples_.push_back(2 * all[i]);
    return {.samples = count,
            .first_sample = mine.begin,
            .rows = mine.rows(),
            .padded_rows = mine.padded_rows,
            .count = mine.rows()};
  }
  models::LossSum loss(int64_t begin, int64_t end) override {
    const auto [points, arms] = read({samples_.begin() + begin, samples_.begin() + end});
    return {.sum = cross_entropy(model_(points), arms, Reduction::kSum)};
  }
  // The set is small, so every rank evaluates all of it.
  models::EvalMetrics evaluate() override {
    const models::EvalScope scope(model_);
    std::vector<int64_t> odd;
    for (int64_t i = 0; i < kSamples; ++i) odd.push_back(2 * i + 1);
    const auto [points, arms] = read(odd);
    const Variable logits = model_(points);
    const Tensor hits = cast(eq(argmax(logits.tensor()), arms), DType::kF32);
    return {.loss = cross_entropy(logits, arms).item<float>(),
            .accuracy = mean(hits).item<float>()};
  }

 private:
  struct Batch {
    Variable points;  // [rows, 2]
    Tensor arms;      // [rows]
  };
  // Computed by a formula here; it could be read from a file.
  static Batch read(const std::vector<int64_t>& samples) {
    std::vector<float> points;
    std::vector<int64_t> arms;
    for (const int64_t sample : samples) {
      const double along = std::fmod(static_cast<double>(sample) * 0.6180339887, 1.0);
      const int64_t arm = sample / 2 % 2;
      const double angle = 6 * along + 3.14159265 * static_cast<double>(arm);
      points.push_back(static_cast<float>((0.2 + along) * std::cos(angle)));
      points.push_back(static_cast<float>((0.2 + along) * std::sin(angle)));
      arms.push_back(arm);
    }
    const auto rows = static_cast<int64_t>(arms.size());
    return {Variable(Tensor::from_vector(points, {rows, 2})), Tensor::from_vector(arms, {rows})};
  }

  distributed::World& world_;
  models::MlpStack& model_;
  models::BatchOrder order_;
  std::vector<int64_t> samples_;  // of this rank and step
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
