#include "tessera/models/training/trainer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/training/image_task.h"
#include "tessera/nn/data/batch_order.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::models {
namespace {

constexpr std::int64_t kSteps = 7;

// Images that differ, with labels by a rule.
data::ImageSet make_images(std::int64_t count) {
  data::ImageSet set;
  std::uint32_t state = 7;
  for (std::int64_t i = 0; i < count; ++i) {
    set.labels.push_back(static_cast<std::uint8_t>(i * 7 % 10));
    for (std::int64_t pixel = 0; pixel < data::kImagePixels; ++pixel) {
      state = state * 1664525 + 1013904223;
      set.pixels.push_back(static_cast<std::uint8_t>(state >> 24));
    }
  }
  return set;
}

MlpOptions model_options() { return {.hidden = {11, 6}, .dtype = DType::kF64}; }

// 13 images in batches of 5, 5 and 3: on 5 ranks a step's rows are 1 each, or 1, 1, 1, 0, 0.
constexpr std::int64_t kBatch = 5;
constexpr double kMomentum = 0.9, kWeightDecay = 0.01;
constexpr std::uint64_t kSeed = 3;

nn::optim::Schedule schedule() {
  return nn::optim::warm_up_cosine({.warm_up = 2, .steps = kSteps});
}

// A run on the ranks of a test.
struct Run {
  Run(distributed::World& world, const data::ImageSet& train, const data::ImageSet& test,
      double lr = 0.05)
      : model(sharded(world)),
        task(world,
             {.module = *model, .forward = [this](const Variable& x) { return (*model)(x); }},
             train, test, {.batch = kBatch, .seed = kSeed, .dtype = DType::kF64}),
        optimizer(model->parameters(),
                  {.lr = lr, .momentum = kMomentum, .weight_decay = kWeightDecay}),
        trainer(world, task, optimizer, {.schedule = schedule(), .seed = kSeed}) {}

  static std::unique_ptr<MlpStack> sharded(distributed::World& world) {
    auto model = std::make_unique<MlpStack>(model_options());
    parallelize(*model, {.mesh = world.mesh(), .precision = precision_named("f64")});
    nn::initialize(*model, {.seed = kSeed, .device = world.device()});
    return model;
  }

  std::unique_ptr<MlpStack> model;
  ImageTask task;
  nn::optim::SGD optimizer;
  Trainer trainer;
};

struct Reference {
  std::vector<double> losses, norms;
  double eval_loss = 0;
  std::int64_t hits = 0;
};

// The same run by hand, without ranks, trainer or optimizer class.
Reference reference_run(const data::ImageSet& train, const data::ImageSet& test) {
  MlpStack model(model_options());
  nn::initialize(model, {.seed = 3});
  nn::data::BatchOrder order(train.size(), {.batch = kBatch, .seed = kSeed});
  std::vector<std::vector<double>> momenta(model.parameters().size());
  Reference result;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const ImageBatch batch = image_batch(train, order.samples_of(step), {.dtype = DType::kF64});
    const Variable loss =
        cross_entropy(model(Variable(batch.pixels)), batch.targets, LossReduction::kMean);
    backward(loss);
    result.losses.push_back(loss.item<double>());
    double squares = 0;
    auto parameters = model.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Tensor& tensor = parameters[p].local().tensor();
      auto values = tensor.to_vector<double>();
      const auto gradient = parameters[p].grad().to_vector<double>();
      const bool first = momenta[p].empty();
      momenta[p].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        squares += gradient[i] * gradient[i];
        const double g = gradient[i] + kWeightDecay * values[i];
        momenta[p][i] = first ? g : kMomentum * momenta[p][i] + g;
        values[i] -= 0.05 * schedule()(step - 1) * momenta[p][i];
      }
      copy_(tensor, Tensor::from_vector(values, tensor.shape()));
      parameters[p].zero_grad();
    }
    result.norms.push_back(std::sqrt(squares));
  }
  const NoGradGuard no_grad;
  for (std::int64_t i = 0; i < test.size(); ++i) {
    const std::vector<std::int64_t> one = {i};
    const ImageBatch batch = image_batch(test, one, {.dtype = DType::kF64});
    const Variable logits = model(Variable(batch.pixels));
    result.eval_loss +=
        cross_entropy(logits, batch.targets).item<double>() / static_cast<double>(test.size());
    result.hits +=
        argmax(logits.tensor()).item<std::int64_t>() == batch.targets.item<std::int64_t>();
  }
  return result;
}

bool near(double a, double b, double relative) { return std::abs(a - b) <= relative * std::abs(b); }

TESSERA_RANK_TEST("training and evaluation equal a run by hand, on any number of ranks",
                  "[trainer]") {
  const data::ImageSet train = make_images(13), test = make_images(7);
  const Reference wanted = reference_run(train, test);
  Run run(t.world(), train, test);
  Trainer& trainer = run.trainer;
  t.check(run.task.steps_per_epoch() == 3, "{} steps an epoch", run.task.steps_per_epoch());
  for (std::size_t step = 1; step <= kSteps; ++step) {
    const StepMetrics metrics = trainer.step();
    t.check(metrics.step == static_cast<std::int64_t>(step), "step {}", metrics.step);
    t.check(near(metrics.loss, wanted.losses[step - 1], 1e-12),
            "step {}: loss {:.17g}, wanted {:.17g}", step, metrics.loss, wanted.losses[step - 1]);
    t.check(near(metrics.grad_norm, wanted.norms[step - 1], 1e-12),
            "step {}: norm {:.17g}, wanted {:.17g}", step, metrics.grad_norm,
            wanted.norms[step - 1]);
    t.check(metrics.samples == (step % 3 == 0 ? 3 : 5), "step {}: {} samples", step,
            metrics.samples);
    t.check(metrics.learning_rate == 0.05 * schedule()(metrics.step - 1), "rate {}",
            metrics.learning_rate);
  }
  const EvalMetrics eval = trainer.evaluate();
  t.check(eval.step == kSteps, "evaluated after {}", eval.step);
  t.check(near(eval.loss, wanted.eval_loss, 1e-12), "loss {:.17g}, wanted {:.17g}", eval.loss,
          wanted.eval_loss);
  t.check(eval.accuracy == static_cast<double>(wanted.hits) / 7, "accuracy {}, wanted {} of 7",
          eval.accuracy.value_or(-1), wanted.hits);
}

// A loss in bf16 would be wrong in the third digit.
TESSERA_RANK_TEST("the loss of bf16 logits is computed and reported in f32", "[trainer]") {
  constexpr std::int64_t kLabel = 3, kClasses = 10;
  data::ImageSet train = make_images(kBatch);
  train.labels.assign(kBatch, kLabel);
  MlpStack model({.hidden = {11, 6}});
  parallelize(model, {.mesh = t.world().mesh(), .precision = precision_named("bf16")});
  nn::initialize(model, {.seed = kSeed, .device = t.world().device()});
  Tensor logits;
  const auto forward = [&](const Variable& x) {
    const Variable y = model(x);
    logits = clone(y.tensor());
    return y;
  };
  ImageTask task(t.world(), {.module = model, .forward = forward}, train, train,
                 {.batch = kBatch, .seed = kSeed});
  nn::optim::SGD optimizer(model.parameters(), {.lr = 0.05});
  const double loss = Trainer(t.world(), task, optimizer, {.seed = kSeed}).step().loss;

  t.check(logits.dtype() == DType::kBF16, "logits are {}", dtype_name(logits.dtype()));
  double sum = 0;
  const auto values = cast(logits, DType::kF64).to_vector<double>();
  for (auto row = values.begin(); row != values.end(); row += kClasses) {
    double exponentials = 0;
    for (std::int64_t i = 0; i < kClasses; ++i) exponentials += std::exp(row[i]);
    sum += std::log(exponentials) - row[kLabel];
  }
  const Tensor total = Tensor::from_vector<double>({sum / kBatch}, {1}, t.world().device());
  distributed::make_mesh(t.world().mesh())->all_reduce(total, "data", nn::MeshReduce::kSum);
  const double wanted = total.item<double>();
  t.check(near(loss, wanted, 1e-6), "loss {:.9g}, of the logits {:.9g}", loss, wanted);
}

TESSERA_RANK_TEST("every rank reports the same, but for its clock", "[trainer]") {
  const data::ImageSet train = make_images(13);
  Run run(t.world(), train, train);
  Trainer& trainer = run.trainer;
  std::string lines;
  for (int step = 0; step < 3; ++step) {
    StepMetrics metrics = trainer.step();
    t.check(metrics.step_ms > 0, "{} ms", metrics.step_ms);
    metrics.step_ms = 0;
    lines += json_line(metrics, DType::kF64) + "\n";
  }
  t.check_same_on_all_ranks(lines, "metrics");
}

TESSERA_RANK_TEST("bytes and collectives of a step follow from the model", "[trainer]") {
  const data::ImageSet train = make_images(13);
  Run run(t.world(), train, train);
  Trainer& trainer = run.trainer;
  trainer.step();
  const StepMetrics metrics = trainer.step();
  const std::int64_t world = t.size();
  // Padded elements of a parameter of `rows` rows of `cols`. Gathered bytes round each parameter up
  // to 256; on a GPU each group is rounded up to 512.
  const auto padded = [&](std::int64_t rows, std::int64_t cols) {
    return (rows + world - 1) / world * world * cols;
  };
  const auto rounded = [&](std::int64_t rows, std::int64_t cols) {
    return (padded(rows, cols) * 8 + 255) / 256 * 256;
  };
  const std::int64_t block0 = padded(11, 784) + padded(11, 1),
                     block1 = padded(6, 11) + padded(6, 1);
  const std::int64_t root = padded(10, 6) + padded(10, 1);
  // Forward gathers three groups, backward the two blocks again; three reductions; the sample
  // count; the norm. A single rank communicates nothing.
  const std::int64_t each = world == 1 ? 0 : 3 + 2 + 3 + 1 + 1;
  t.check(metrics.collectives == world * each, "{} collectives", metrics.collectives);
  // Each rank sends (W-1)/W of the padded bytes, and 8 bytes to every other rank for each of count
  // and norm.
  const std::int64_t moved = (2 * (block0 + block1) + root + block0 + block1 + root) * 8;
  t.check(metrics.comm_bytes == (world - 1) * (moved + 2 * 8 * world), "{} bytes sent, wanted {}",
          metrics.comm_bytes, (world - 1) * (moved + 2 * 8 * world));
  const std::int64_t unit = t.world().device().is_cuda() ? 512 : 256;
  const auto group = [&](std::int64_t rows, std::int64_t cols) {
    return (rounded(rows, cols) + rounded(rows, 1) + unit - 1) / unit * unit;
  };
  const std::int64_t largest = group(11, 784);
  const std::int64_t all_groups = largest + group(6, 11) + group(10, 6);
  t.check(world == 1
              ? metrics.gathered_peak_bytes == 0
              : metrics.gathered_peak_bytes > largest && metrics.gathered_peak_bytes <= all_groups,
          "{} gathered, {} in all", metrics.gathered_peak_bytes, all_groups);
  t.check(metrics.peak_bytes > metrics.gathered_peak_bytes, "{} peak", metrics.peak_bytes);
}

TESSERA_RANK_TEST("a run that goes on from a checkpoint is the run that was not interrupted",
                  "[trainer]") {
  const data::ImageSet train = make_images(13);
  std::string parent;
  if (t.rank() == 0) parent = testing::temporary_path(fmt::format("resumed_{}", t.size()), "run");
  parent = t.gather_text(parent).front();
  Run whole(t.world(), train, train), first(t.world(), train, train),
      second(t.world(), train, train);
  for (int step = 0; step < kSteps; ++step) whole.trainer.step();
  for (int step = 0; step < 4; ++step) first.trainer.step();
  nn::StateDict values;
  values.set("mine", 0.5);
  checkpoint::save(parent + "/step-4", first.trainer.checkpoint_state(values));

  nn::StateDict found;
  checkpoint::load(parent + "/step-4", second.trainer.checkpoint_state(found),
                   {.device = t.world().device()});
  t.check(found.number("mine") == 0.5, "the caller's value");
  second.trainer.resume(found);
  t.check(second.trainer.steps_done() == 4, "{} steps", second.trainer.steps_done());
  t.check(second.trainer.learning_rate() == first.trainer.learning_rate(), "rate {}",
          second.trainer.learning_rate());
  for (int step = 4; step < kSteps; ++step)
    t.check(second.trainer.step().step == step + 1, "another step");
  for (std::size_t p = 0; p < whole.model->parameters().size(); ++p)
    t.check_equal(second.model->parameters()[p].local().tensor(),
                  whole.model->parameters()[p].local().tensor(), "a parameter");
  t.check_throws<StateError>("resume() after step 7", [&] { second.trainer.resume(found); });

  // The last image differs in one pixel; then the order.
  data::ImageSet changed = train;
  changed.pixels.back() ^= 1;
  Run other(t.world(), changed, train);
  t.check_throws<InvalidArgument>("is of a run on other samples: 13 images (",
                                  [&] { other.trainer.resume(found); });
  t.check(other.trainer.steps_done() == 0, "a refused resume counts");
  nn::StateDict mine;
  Run same(t.world(), train, train);
  same.trainer.checkpoint_state(mine);
  t.check(mine.text("trainer.data") == found.text("trainer.data"), "{}", mine.text("trainer.data"));
  mine.set("trainer.step", std::int64_t{-1});
  t.check_throws<InvalidArgument>("trainer.step is -1", [&] { same.trainer.resume(mine); });
  t.check_throws<InvalidArgument>("trainer.step", [&] { same.trainer.resume({}); });
}

TESSERA_RANK_TEST("evaluation leaves mode and model as they were", "[trainer]") {
  const data::ImageSet train = make_images(13), test = make_images(2);
  Run run(t.world(), train, test);
  Trainer& trainer = run.trainer;
  trainer.step();
  const Tensor before = clone(run.model->parameters()[0].local().tensor());
  const EvalMetrics first = trainer.evaluate();
  const EvalMetrics second = trainer.evaluate();
  t.check(first.loss == second.loss, "{} then {}", first.loss, second.loss);
  t.check(run.model->is_training(), "the model was left in evaluation mode");
  t.check_equal(run.model->parameters()[0].local().tensor(), before, "a parameter");
  t.check(trainer.step().step == 2, "evaluation counted as a step");
}

TESSERA_RANK_TEST("a signal that one rank has seen is in the metrics of all", "[trainer]") {
  const data::ImageSet train = make_images(13), test = make_images(4);
  distributed::World world(t.world().group(), t.world().device(), t.world().context());
  Run run(world, train, test);
  t.check(run.trainer.step().stop_signal == 0, "nobody has asked");
  if (t.rank() == t.size() - 1) world.ask_to_stop(15);
  t.check(run.trainer.step().stop_signal == 15, "the last rank has");
}

TESSERA_RANK_TEST("a loss that is not finite ends the run on every rank", "[trainer]") {
  const data::ImageSet train = make_images(13);
  Run run(t.world(), train, train, 1e200);
  t.check_throws<StateError>("lower the learning rate", [&] {
    for (int step = 0; step < 6; ++step) run.trainer.step();
  });
}

TESSERA_RANK_TEST("a model of another dtype than the precision stores is refused", "[trainer]") {
  MlpStack model(model_options());
  t.check_throws<InvalidArgument>("is f64, precision f32 stores f32; construct the model with it",
                                  [&] { parallelize(model, {.mesh = t.world().mesh()}); });
}

TESSERA_RANK_TEST("a task needs images, and a batch of evaluation that is not negative",
                  "[trainer]") {
  const data::ImageSet none;
  t.check_throws<InvalidArgument>("0 samples", [&] { Run run(t.world(), none, none); });
  t.check_throws<InvalidArgument>("eval_batch is -1; give 1 or more, or 0 for the default", [&] {
    const auto negative = Run::sharded(t.world());
    const data::ImageSet set = make_images(1);
    ImageTask(t.world(), Classifier{.module = *negative, .forward = {}}, set, set,
              {.eval_batch = -1});
  });
}

}  // namespace
}  // namespace tessera::models
