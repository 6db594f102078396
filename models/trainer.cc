#include "tessera/models/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh_impl.h"
#include "tessera/distributed/placement.h"
#include "tessera/models/image_batch.h"
#include "tessera/nn/clip_grad.h"
#include "tessera/nn/loss.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops.h"

namespace tessera::models {
namespace {

using Clock = std::chrono::steady_clock;

// Samples that a rank evaluates at a time: what an evaluation's memory depends on.
constexpr std::int64_t kEvalRows = 1000;

// A host value of a tensor of either floating dtype.
double host_value(const Tensor& tensor) {
  return dispatch_floating(tensor.dtype(), "trainer",
                           [&]<class T>() { return static_cast<double>(tensor.item<T>()); });
}

// Rows whose largest logit is their target's.
std::int64_t count_hits(const Tensor& logits, const Tensor& targets) {
  const auto best = argmax(logits).to_vector<std::int64_t>();
  const auto wanted = targets.to_vector<std::int64_t>();
  std::int64_t hits = 0;
  for (std::size_t row = 0; row < best.size(); ++row) hits += best[row] == wanted[row];
  return hits;
}

nn::optim::SgdOptions sgd_options(const TrainerOptions& options) {
  return {.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay};
}

// Evaluation runs without a graph and in evaluation mode, and leaves the mode as it was.
class EvalScope {
 public:
  explicit EvalScope(nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvalScope() { module_.train(was_training_); }
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  nn::Module& module_;
  bool was_training_;
  NoGradGuard no_grad_;
};

}  // namespace

// What one rank knows of a step.
struct Trainer::LocalStep {
  double loss_sum = 0;
  double grad_norm = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t gathered_peak_bytes = 0;
  std::int64_t comm_bytes = 0;
  std::int64_t collectives = 0;
};

Trainer::Trainer(distributed::World& world, Classifier model, const data::ImageSet& train,
                 const TrainerOptions& options)
    : world_(world),
      model_(std::move(model)),
      train_(train),
      options_(options),
      mesh_(distributed::make_mesh(world.mesh())),
      parameters_(model_.module.parameters()),
      optimizer_(parameters_, sgd_options(options)),
      scheduler_(optimizer_, options.schedule),
      order_(train.count(), options.batch, options.seed) {}

// Every rank's values, in rank order.
std::vector<double> Trainer::gather(std::span<const double> values) const {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor mine = Tensor::from_vector(std::vector(values.begin(), values.end()), {count});
  const Tensor all = Tensor::empty({count * world_.size()}, {.dtype = DType::kF64, .device = kCpu});
  distributed::all_gather(*world_.group(), {&mine, 1}, {&all, 1}, "trainer.metrics");
  return all.to_vector<double>();
}

Trainer::LocalStep Trainer::run_step(std::span<const std::int64_t> local) {
  MemoryCounters& memory = world_.context()->memory();
  memory.reset_peak();
  const distributed::CollectiveCounters before = distributed::collective_counters();

  const ImageBatch batch =
      image_batch(train_, local, {.dtype = options_.dtype, .device = world_.device()});
  const Variable loss_sum =
      cross_entropy(model_.forward(Variable(batch.pixels)), batch.targets, Reduction::kSum);
  backward(nn::global_mean(loss_sum, batch.rows(), *mesh_));
  const Tensor norm = nn::grad_norm(parameters_);
  optimizer_.step();
  optimizer_.zero_grad();
  scheduler_.step();

  LocalStep step{.loss_sum = host_value(loss_sum.tensor()), .grad_norm = host_value(norm)};
  const distributed::CollectiveCounters after = distributed::collective_counters();
  step.peak_bytes = memory.peak_total();
  step.gathered_peak_bytes = memory.peak()[MemoryCategory::kGathered];
  step.comm_bytes = after.bytes_sent - before.bytes_sent;
  step.collectives = after.collectives - before.collectives;
  return step;
}

// The ranks' figures as one: `metrics` has loss 0 and no bytes yet.
void Trainer::combine(const LocalStep& local, StepMetrics& metrics) const {
  constexpr std::size_t kFigures = 5;
  const std::array<double, kFigures> mine = {local.loss_sum, static_cast<double>(local.peak_bytes),
                                             static_cast<double>(local.gathered_peak_bytes),
                                             static_cast<double>(local.comm_bytes),
                                             static_cast<double>(local.collectives)};
  const std::vector<double> all = gather(mine);
  for (std::size_t at = 0; at < all.size(); at += kFigures) {
    const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>(all[at + i]); };
    metrics.loss += all[at];
    metrics.peak_bytes = std::max(metrics.peak_bytes, whole(1));
    metrics.gathered_peak_bytes = std::max(metrics.gathered_peak_bytes, whole(2));
    metrics.comm_bytes += whole(3);
    metrics.collectives += whole(4);
  }
  metrics.loss /= static_cast<double>(metrics.samples);
  metrics.grad_norm = local.grad_norm;
}

StepMetrics Trainer::step() {
  const auto start = Clock::now();
  StepMetrics metrics{.step = steps_done_ + 1};
  metrics.learning_rate = optimizer_.lr();
  const std::span<const std::int64_t> samples = order_.samples_of(metrics.step);
  metrics.samples = static_cast<std::int64_t>(samples.size());
  const distributed::Chunk chunk =
      distributed::chunk_of(metrics.samples, world_.size(), world_.rank());
  const LocalStep local = run_step(samples.subspan(static_cast<std::size_t>(chunk.begin),
                                                   static_cast<std::size_t>(chunk.rows())));
  metrics.step_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  steps_done_ = metrics.step;
  combine(local, metrics);
  TESSERA_CHECK_AS(StateError, std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm),
                   "trainer",
                   "step {} has loss {} and gradient norm {}; lower the learning rate {}",
                   metrics.step, metrics.loss, metrics.grad_norm, metrics.learning_rate);
  return metrics;
}

EvalMetrics Trainer::evaluate(const data::ImageSet& set) {
  const EvalScope scope(model_.module);
  const distributed::Chunk chunk = distributed::chunk_of(set.count(), world_.size(), world_.rank());
  double loss_sum = 0;
  std::int64_t hits = 0;
  // All ranks make as many passes, the last ones perhaps without a sample: a pass gathers
  // parameters.
  for (std::int64_t at = 0; at < chunk.padded_rows; at += kEvalRows) {
    const std::int64_t begin = std::min(chunk.begin + at, chunk.end);
    std::vector<std::int64_t> samples(
        static_cast<std::size_t>(std::min(kEvalRows, chunk.end - begin)));
    std::iota(samples.begin(), samples.end(), begin);
    const ImageBatch batch =
        image_batch(set, samples, {.dtype = options_.dtype, .device = world_.device()});
    const Variable logits = model_.forward(Variable(batch.pixels));
    loss_sum += host_value(cross_entropy(logits, batch.targets, Reduction::kSum).tensor());
    hits += count_hits(logits.tensor(), batch.targets);
  }
  const std::array<double, 2> mine = {loss_sum, static_cast<double>(hits)};
  EvalMetrics metrics{.step = steps_done_};
  const std::vector<double> all = gather(mine);
  for (std::size_t rank = 0; rank < all.size(); rank += mine.size()) {
    metrics.loss += all[rank];
    metrics.accuracy += all[rank + 1];
  }
  metrics.loss /= static_cast<double>(set.count());
  metrics.accuracy /= static_cast<double>(set.count());
  return metrics;
}

}  // namespace tessera::models
