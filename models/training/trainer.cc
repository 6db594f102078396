#include "tessera/models/training/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/flight_recorder.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/handle.h"
#include "tessera/models/training/first_bad_tensor.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/nn/training/global_mean.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"

namespace tessera::models {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kWhere = "models.Trainer";
constexpr const char *kStepEntry = "trainer.step", *kDataEntry = "trainer.data";
// Gradients that still overflow below this loss scale are themselves not finite.
constexpr double kLeastLossScale = 1e-6;

// A scope in which gradients accumulate for a later reduction.
class NoGradientSync {
 public:
  NoGradientSync(nn::Module& module, bool active)
      : handle_(active && fsdp::has_state(module) ? std::optional(fsdp::of(module))
                                                  : std::nullopt) {
    if (handle_) handle_->set_requires_gradient_sync(false);
  }
  ~NoGradientSync() {
    if (handle_) handle_->set_requires_gradient_sync(true);
  }
  NoGradientSync(const NoGradientSync&) = delete;
  NoGradientSync& operator=(const NoGradientSync&) = delete;

 private:
  std::optional<fsdp::Handle> handle_;
};

// The rows of each pass. All ranks run the same number of passes, the last ones possibly without
// rows, because a pass gathers parameters.
struct Passes {
  Passes(const BatchShare& share, std::int64_t micro_batch)
      : rows(share.rows),
        each(micro_batch > 0 ? micro_batch : std::max<std::int64_t>(share.padded_rows, 1)),
        count(std::max<std::int64_t>((share.padded_rows + each - 1) / each, 1)) {}
  std::int64_t begin(std::int64_t pass) const { return std::min(rows, pass * each); }
  std::int64_t end(std::int64_t pass) const { return std::min(rows, (pass + 1) * each); }

  std::int64_t rows;
  std::int64_t each;
  std::int64_t count;
};

}  // namespace

// One rank's data of a step.
struct Trainer::LocalStep {
  double loss_sum = 0;
  double loss = 0;  // the mean over all ranks
  std::optional<double> auxiliary_loss;
  double grad_norm = 0;
  std::optional<double> loss_scale;
  bool skipped = false;
  std::int64_t peak_bytes = 0;
  std::int64_t gathered_peak_bytes = 0;
  std::int64_t comm_bytes = 0;
  std::int64_t collectives = 0;
};

Trainer::Trainer(distributed::World& world, Task& task, nn::optim::Optimizer& optimizer,
                 const TrainerOptions& options)
    : world_(world),
      task_(task),
      optimizer_(optimizer),
      options_(options),
      data_mesh_(options.data_mesh.defined() ? options.data_mesh : world.mesh()),
      mesh_(distributed::make_mesh(data_mesh_)),
      parameters_(optimizer.parameters()),
      scheduler_(optimizer_, options.schedule) {
  TESSERA_CHECK(data_mesh_.ndim() == 1, kWhere,
                "data_mesh is {}; it has one axis, of the ranks that share the batch",
                data_mesh_.str());
  TESSERA_CHECK(options.max_grad_norm >= 0, kWhere, "max_grad_norm is {}; it is at least 0",
                options.max_grad_norm);
  TESSERA_CHECK(options.micro_batch >= 0, kWhere, "micro_batch is {}; it is at least 0",
                options.micro_batch);
  TESSERA_CHECK(!options.cuda_graphs || !options.loss_scale, kWhere,
                "cuda_graphs would repeat one loss_scale, which changes from step to step; train "
                "in bf16, or without cuda_graphs");
  if (options.cuda_graphs) {
    captured_.emplace(world, parameters_, [this] {
      for (nn::Module* module : fsdp::sharded_modules(task_.module())) fsdp::of(*module).reshard();
    });
  }
  if (options.loss_scale) scaler_.emplace(nn::GradScalerOptions{.mesh = mesh_});
}

PassLosses Trainer::compute_gradients(const BatchShare& share) {
  std::optional<random::NoDraws> no_draws;
  if (captured_) no_draws.emplace("cuda_graphs would repeat them; set its probability to 0");
  const nn::GlobalMean mean(share.count, mesh_, data_mesh_.axes().front(), world_.device());
  const Passes passes(share, options_.micro_batch);
  PassLosses losses;
  for (std::int64_t pass = 0; pass < passes.count; ++pass) {
    const std::int64_t begin = passes.begin(pass), end = passes.end(pass);
    const random::StepScope scope({.seed = options_.seed,
                                   .step = static_cast<std::uint64_t>(steps_done_ + 1),
                                   .first_sample = share.first_sample + begin});
    const NoGradientSync no_sync(task_.module(), pass + 1 < passes.count);
    const LossSum loss = task_.loss(begin, end);
    Variable total = mean(loss.sum);
    if (loss.auxiliary.defined()) {
      const Variable auxiliary = div(loss.auxiliary, static_cast<double>(passes.count));
      total = total + cast(auxiliary, total.dtype());
      losses.auxiliaries.push_back(auxiliary.tensor());
    }
    losses.sums.push_back(loss.sum.tensor());
    backward(scaler_ ? scaler_->scale(total) : total);
  }
  return losses;
}

PassLosses Trainer::accumulate_gradients(const BatchShare& share) {
  return captured_ ? captured_->run(share, task_.inputs(), [&] { return compute_gradients(share); })
                   : compute_gradients(share);
}

void Trainer::read_losses(const PassLosses& losses, LocalStep& step) {
  for (const Tensor& sum : losses.sums) step.loss_sum += host_value(sum);
  for (const Tensor& auxiliary : losses.auxiliaries)
    step.auxiliary_loss = step.auxiliary_loss.value_or(0) + host_value(auxiliary);
}

// Ranks that share every layer (tensor parallelism) have the same loss, so the sum is over the data
// axis, whose ranks together hold each sample once.
void Trainer::combine_losses(const BatchShare& share, LocalStep& step) const {
  const std::array<double, 2> mine = {step.loss_sum, static_cast<double>(share.count)};
  double loss_sum = 0, count = 0;
  const std::vector<double> all = gather_figures(*data_mesh_.group(), mine);
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    loss_sum += all[at];
    count += all[at + 1];
  }
  step.loss = loss_sum / count;
}

// Skips the update if loss or norm is not finite. Both are equal on all ranks, so all ranks skip
// the step.
void Trainer::update(const Tensor& norm, LocalStep& step) {
  step.grad_norm = host_value(norm);
  const bool finite = std::isfinite(step.grad_norm);
  nn::optim::StepOptions options;
  if (finite && options_.max_grad_norm > 0)
    options.gradient_scale = nn::clip_coefficient(options_.max_grad_norm, norm);
  if (!std::isfinite(step.loss + step.auxiliary_loss.value_or(0))) return;
  if (scaler_) {
    step.skipped = !scaler_->step(optimizer_, options);
    scaler_->update();
  } else if (finite) {
    optimizer_.step(options);
  }
}

Trainer::LocalStep Trainer::run_step(const BatchShare& share) {
  MemoryCounters& memory = world_.context()->memory();
  memory.reset_peak();
  LocalStep step;
  const auto counted = [&](const auto& work) {
    const distributed::CollectiveCounters before = distributed::collective_counters();
    work();
    const distributed::CollectiveCounters after = distributed::collective_counters();
    step.comm_bytes += after.bytes_sent - before.bytes_sent;
    step.collectives += after.collectives - before.collectives;
  };
  PassLosses losses;
  Tensor norm;
  counted([&] {
    losses = accumulate_gradients(share);
    if (scaler_) {
      step.loss_scale = scaler_->get_scale();
      scaler_->unscale(optimizer_);
    }
    norm = nn::grad_norm(parameters_);
  });
  // Read after everything was issued, so that a device, which may be far behind the host, never
  // waits for it in between.
  read_losses(losses, step);
  combine_losses(share, step);
  counted([&] { update(norm, step); });
  step.peak_bytes = memory.peak_total();
  step.gathered_peak_bytes = memory.peak()[MemoryCategory::kGathered];
  if (!captured_) return step;
  const UnseenCost& unseen = captured_->unseen();
  step.comm_bytes += unseen.comm_bytes;
  step.collectives += unseen.collectives;
  step.peak_bytes = std::max(step.peak_bytes, unseen.peak_bytes);
  step.gathered_peak_bytes = std::max(step.gathered_peak_bytes, unseen.gathered_peak_bytes);
  return step;
}

// Combines the ranks' metrics. `metrics` has no loss and no bytes yet.
void Trainer::combine(const LocalStep& local, StepMetrics& metrics) const {
  metrics.loss = local.loss;
  const std::array<double, 5> mine = {
      static_cast<double>(local.peak_bytes), static_cast<double>(local.gathered_peak_bytes),
      static_cast<double>(local.comm_bytes), static_cast<double>(local.collectives),
      static_cast<double>(world_.stop_signal())};
  const std::vector<double> all = gather_figures(*world_.group(), mine);
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>(all[at + i]); };
    metrics.peak_bytes = std::max(metrics.peak_bytes, whole(0));
    metrics.gathered_peak_bytes = std::max(metrics.gathered_peak_bytes, whole(1));
    metrics.comm_bytes += whole(2);
    metrics.collectives += whole(3);
    metrics.stop_signal = std::max(metrics.stop_signal, static_cast<int>(whole(4)));
  }
  metrics.auxiliary_loss = local.auxiliary_loss;
  metrics.grad_norm = local.grad_norm;
  metrics.loss_scale = local.loss_scale;
  metrics.skipped = local.skipped;
}

void Trainer::check_finite(const StepMetrics& metrics, const BatchShare& share) {
  const bool norm_may_be_infinite = scaler_ && scaler_->get_scale() >= kLeastLossScale;
  const bool finite = std::isfinite(metrics.loss) &&
                      std::isfinite(metrics.auxiliary_loss.value_or(0)) &&
                      (norm_may_be_infinite || std::isfinite(metrics.grad_norm));
  if (finite) return;
  const auto forward = [&] {
    const Passes passes(share, options_.micro_batch);
    for (std::int64_t pass = 0; pass < passes.count; ++pass) {
      const random::StepScope scope({.seed = options_.seed,
                                     .step = static_cast<std::uint64_t>(metrics.step),
                                     .first_sample = share.first_sample + passes.begin(pass)});
      task_.loss(passes.begin(pass), passes.end(pass));
    }
  };
  const std::string first = first_bad_tensor(task_.module(), forward, *world_.group());
  const std::string auxiliary =
      metrics.auxiliary_loss ? fmt::format(", auxiliary loss {}", *metrics.auxiliary_loss) : "";
  throw_error<StateError>(
      "trainer", "step {} has loss {}{} and gradient norm {}: {}; lower the learning rate {}",
      metrics.step, metrics.loss, auxiliary, metrics.grad_norm, first, metrics.learning_rate);
}

StepMetrics Trainer::step() {
  const auto start = Clock::now();
  StepMetrics metrics{.step = steps_done_ + 1};
  metrics.learning_rate = optimizer_.lr();
  const BatchShare share = task_.load(metrics.step);
  metrics.samples = share.samples;
  metrics.tokens = share.tokens;
  distributed::note_step(metrics.step);
  const LocalStep local = run_step(share);
  metrics.step_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  combine(local, metrics);
  check_finite(metrics, share);
  optimizer_.zero_grad();
  scheduler_.step();
  steps_done_ = metrics.step;
  return metrics;
}

EvalMetrics Trainer::evaluate() {
  EvalMetrics metrics = task_.evaluate();
  metrics.step = steps_done_;
  if (std::isfinite(metrics.loss)) return metrics;
  const std::string first = first_bad_tensor(
      task_.module(), [&] { task_.evaluate(); }, *world_.group());
  throw_error<StateError>("trainer",
                          "the evaluation after step {} has loss {}: {}; lower the learning rate",
                          steps_done_, metrics.loss, first);
}

const std::string& Trainer::data_fingerprint() {
  if (!data_fingerprint_) {
    std::string mine;
    distributed::on_first_rank(world_.group().get(), [&] { mine = task_.data_fingerprint(); });
    data_fingerprint_ = distributed::first_text(world_.group().get(), mine);
  }
  return *data_fingerprint_;
}

checkpoint::State Trainer::checkpoint_state(nn::StateDict& values) {
  values.set(kStepEntry, steps_done_);
  values.set(kDataEntry, data_fingerprint());
  return {.group = world_.group(),
          .model = &task_.module(),
          .optimizer = &optimizer_,
          .scheduler = &scheduler_,
          .scaler = scaler_ ? &*scaler_ : nullptr,
          .values = &values};
}

void Trainer::resume(const nn::StateDict& values) {
  TESSERA_CHECK_AS(StateError, steps_done_ == 0, kWhere,
                   "resume() after step {}; make a new trainer for the checkpoint", steps_done_);
  const std::int64_t step = values.integer(kStepEntry);
  TESSERA_CHECK(step >= 0, kWhere, "{} is {}; it is at least 0", kStepEntry, step);
  const std::string& saved = values.text(kDataEntry);
  TESSERA_CHECK(saved == data_fingerprint(), kWhere,
                "the checkpoint is of a run on other samples: {}; this run has {}; give the saved "
                "run's data, batch and seed, or begin a new run",
                saved, data_fingerprint());
  steps_done_ = step;
}

}  // namespace tessera::models
