// A run with a NaN or an infinity ends, in a step or an evaluation, on every rank, naming the first
// such tensor and keeping the parameters of before.

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/parallelize/parallelize_rules.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/training/language_task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/language/run.h"
#include "tessera/tests/models/language/tiny_model.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::precision_named;
using models::ShardMode;
using models::data::PackedSequences;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Tensor> copies(const nn::Module& module) {
  std::vector<Tensor> out;
  for (const nn::Parameter& parameter : module.parameters())
    out.push_back(clone(parameter.local().tensor()));
  return out;
}

void check_unchanged(RankTest& t, nn::Module& module, const std::vector<Tensor>& before) {
  const auto parameters = module.named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    t.check_equal(parameters[i].parameter.local().tensor(), before[i], parameters[i].name);
}

// The call's error is the same on all ranks and contains `part`; the parameters are unchanged.
void check_fails(RankTest& t, models::Trainer& trainer, nn::Module& module, const std::string& part,
                 const std::function<void()>& call) {
  const std::vector<Tensor> before = copies(module);
  std::string text = "no error";
  try {
    call();
  } catch (const StateError& error) {
    text = error.what();
    text = text.substr(text.find(": ") + 2);  // without the prefix of the failed rank
  }
  t.check(text.find(part) != std::string::npos, "\"{}\" lacks \"{}\"", text, part);
  t.check_same_on_all_ranks(text, "the error");
  check_unchanged(t, module, before);
  t.check(trainer.steps_done() == 1, "{} steps are done", trainer.steps_done());
}

// Takes a step, damages the model, and takes another step.
template <class Spoil>
void check_model(RankTest& t, const std::string& name, ShardMode mode, Spoil spoil,
                 const std::string& part) {
  const RankTest::NamedCase named(t, name);
  const auto model = tiny_model(name, {.dtype = DType::kF64});
  model->parallelize(
      {.mesh = t.world().mesh(), .shard = mode, .precision = precision_named("f64")});
  nn::initialize(model->module(), {.seed = 3});
  nn::optim::SGD sgd(model->module().parameters(), {.lr = 0.1, .momentum = 0.9});
  const PackedSequences text(letter_stream(9 * kTinyLength + 1, 1), kTinyLength);
  const LetterTokenizer tokenizer;
  models::LanguageTask task(t.world(), model->language_model(), text, text, tokenizer,
                            {.batch = 4});
  models::Trainer trainer(t.world(), task, sgd);
  trainer.step();
  spoil(model->module());
  check_fails(t, trainer, model->module(), part, [&] { trainer.step(); });
  check_fails(t, trainer, model->module(), part, [&] { trainer.evaluate(); });
}

// Writes into row 0 of a parameter, on the rank that has it.
void spoil_row_0(nn::Module& module, const std::string& name, double value) {
  nn::Parameter parameter = module.get_parameter(name);
  if (parameter.spec().boxes.front().offset[0] != 0 || parameter.local().numel() == 0) return;
  const Tensor row = parameter.local().tensor().narrow(0, 0, 1);
  copy_(row, full(row.shape(), value, {.dtype = row.dtype()}));
}

TESSERA_RANK_TEST("a parameter that is not finite ends a run on text", "[trainer]") {
  for (const ShardMode mode : {ShardMode::kFull, ShardMode::kReplicate}) {
    for (const char* model : {"gpt", "moe"}) {
      check_model(
          t, model, mode,
          [](nn::Module& module) { spoil_row_0(module, "blocks.1.ffn_norm.weight", kInfinity); },
          "parameter \"blocks.1.ffn_norm.weight\" has 1 value that is not finite");
    }
  }
}

TESSERA_RANK_TEST("an activation that is not finite ends a run on text", "[trainer]") {
  // Finite in the parameters, infinite in their product.
  check_model(
      t, "gpt", ShardMode::kFull,
      [](nn::Module& module) {
        spoil_row_0(module, "blocks.0.ffn_norm.weight", 1e200);
        spoil_row_0(module, "blocks.0.feed_forward.up.weight", 1e200);
      },
      "the result of \"blocks.0.feed_forward.up\" (Linear) has");
}

// ---- a bad loss or gradient alone ----

class Weights final : public nn::Layer<Weights> {
 public:
  Weights() : weight_({.shape = {5}, .dtype = DType::kF64, .init = nn::init::constant(1)}) {
    register_parameter("weight", weight_);
  }
  Variable forward(const Variable& x) { return x * weight_.value(); }

 private:
  nn::Parameter weight_;
};

// On the last rank, a loss of the weights, which are 1; on the other ranks, the sum of the weights.
class LossTask final : public models::Task {
 public:
  using Loss = Variable (*)(const Variable&);
  LossTask(const distributed::World& world, Weights& model, Loss loss)
      : last_(world.rank() + 1 == world.size()), model_(model), loss_(loss) {}
  nn::Module& module() override { return model_; }
  std::int64_t steps_per_epoch() const override { return 1; }
  models::BatchShare load(std::int64_t step) override {
    step_ = step;
    return {.samples = 1, .rows = 1, .padded_rows = 1, .count = 1};
  }
  models::LossSum loss(std::int64_t, std::int64_t) override {
    const Variable y = model_(Variable(full({5}, 1, {.dtype = DType::kF64})));
    return {.sum = last_ && step_ >= 2 ? loss_(y) : sum(y)};
  }
  models::EvalMetrics evaluate() override { return {}; }

 private:
  bool last_;
  Weights& model_;
  Loss loss_;
  std::int64_t step_ = 0;
};

void check_loss(RankTest& t, LossTask::Loss loss, const std::string& part) {
  for (const ShardMode mode : {ShardMode::kFull, ShardMode::kReplicate}) {
    Weights model;
    models::shard_module(
        model, {.mesh = t.world().mesh(), .shard = mode, .precision = precision_named("f64")});
    nn::initialize(model, {.seed = 1});
    nn::optim::SGD sgd(model.parameters(), {.lr = 0});  // weights stay 1 in the first step
    LossTask task(t.world(), model, loss);
    models::Trainer trainer(t.world(), task, sgd);
    trainer.step();
    sgd.set_lr(0.5);
    check_fails(t, trainer, model, part, [&] { trainer.step(); });
  }
}

TESSERA_RANK_TEST("a gradient that is not finite ends a run", "[trainer]") {
  // The square root of 0 is 0, its derivative infinite.
  check_loss(
      t, [](const Variable& y) { return sum(sqrt(y - y.detach())); },
      "the gradient of \"weight\" has");
}

// 65536 is halved 36 times.
TESSERA_RANK_TEST("a gradient that is finite at no loss scale ends a run", "[trainer]") {
  Weights model;
  models::shard_module(model, {.mesh = t.world().mesh(), .precision = precision_named("f64")});
  nn::initialize(model, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), {.lr = 0.5});
  LossTask task(t.world(), model, [](const Variable& y) { return sum(sqrt(y - y.detach())); });
  models::Trainer trainer(t.world(), task, sgd, {.loss_scale = true});
  trainer.step();
  const std::vector<Tensor> before = copies(model);
  t.check_throws<StateError>("the gradient of \"weight\" has", [&] {
    for (int step = 2; step < 60; ++step)
      t.check(trainer.step().skipped, "step {} was taken", step);
  });
  t.check(trainer.steps_done() == 36, "ended after {} steps", trainer.steps_done());
  check_unchanged(t, model, before);
}

TESSERA_RANK_TEST("a loss that is infinite on one rank, with finite gradients, ends a run",
                  "[trainer]") {
  check_loss(
      t, [](const Variable& y) { return sum(y) + kInfinity; }, "lower the learning rate");
}

TESSERA_RANK_TEST("a loss that is NaN on one rank, with finite gradients, ends a run",
                  "[trainer]") {
  check_loss(
      t, [](const Variable& y) { return sum(y) + std::numeric_limits<double>::quiet_NaN(); },
      "lower the learning rate");
}

}  // namespace

namespace {

// Training a language model: the gradient of the logits reuses their memory, for every model and
// precision, so backward needs no second tensor of [tokens, vocabulary].
constexpr std::int64_t kBatch = 8;

void check_logits_memory(RankTest& t, const std::string& name, const std::string& precision) {
  const LetterTokenizer tokenizer;
  const models::data::PackedSequences text(letter_stream(kBatch * kTinyLength + 1, 1), kTinyLength);
  const std::unique_ptr<TinyModel> model = tiny_model(name, {});
  model->parallelize({.mesh = t.world().mesh(), .precision = models::precision_named(precision)});
  nn::initialize(model->module(), {.seed = 3, .device = t.world().device()});
  models::LanguageTask task(t.world(), model->language_model(), text, text, tokenizer,
                            {.batch = kBatch});
  const models::BatchShare share = task.load(1);
  const random::StepScope scope({.seed = 7, .step = 1, .first_sample = share.first_sample});
  const models::LossSum loss = task.loss(0, share.rows);
  bool in_place = false;
  loss.sum.gradient_edge().node->add_post_hook([&](const Gradients& gradients) {
    const char* writer = gradients.front().tensor().last_writer();
    in_place = writer != nullptr && std::string(writer) == "cross_entropy_rows_backward_";
  });
  Variable total = loss.sum;
  if (loss.auxiliary.defined()) total = total + cast(loss.auxiliary, total.dtype());
  backward(total);
  t.check(share.rows == 0 || in_place, "{} in {}: the logits' gradient has memory of its own", name,
          precision);
}

TESSERA_RANK_TEST("the gradient of a language model's logits takes their memory", "[trainer]") {
  for (const std::string& name : tiny_model_names()) {
    for (const char* precision : {"f32", "bf16"}) check_logits_memory(t, name, precision);
  }
}

}  // namespace
}  // namespace tessera::testing
