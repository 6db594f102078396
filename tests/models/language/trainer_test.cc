// The metrics that a Trainer reports for a language model, against slow computations without ranks,
// trainer or optimizer class: loss, gradient norm and clipping, learning rates, tokens, bytes sent,
// bits per byte.

#include "tessera/models/training/trainer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/training/language_task.h"
#include "tessera/nn/data/batch_order.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/language/tiny_model.h"
#include "tessera/tests/support/collective_records.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::data::PackedSequences;

// 13 sequences in batches of 5, 5 and 3: of five ranks, two have none in the third step.
constexpr std::int64_t kBatch = 5, kSequences = 13;
constexpr int kSteps = 7;
constexpr double kRate = 0.2, kMomentum = 0.9, kMaxNorm = 0.6;
constexpr std::uint64_t kOrderSeed = 5, kDropoutSeed = 7;

const PackedSequences& train_text() {
  static const PackedSequences text(letter_stream(kSequences * kTinyLength + 1, 1), kTinyLength);
  return text;
}
const PackedSequences& validation_text() {
  static const PackedSequences text(letter_stream(4 * kTinyLength + 1, 2), kTinyLength);
  return text;
}

nn::optim::Schedule schedule() {
  return nn::optim::warm_up_cosine({.warm_up = 2, .steps = kSteps});
}

// A run on the ranks of a test.
struct Run {
  explicit Run(distributed::World& world, double max_grad_norm = kMaxNorm)
      : model(sharded(world)),
        task(world, model->language_model(), train_text(), validation_text(), tokenizer,
             {.batch = kBatch, .seed = kOrderSeed}),
        optimizer(model->module().parameters(), {.lr = kRate, .momentum = kMomentum}),
        trainer(world, task, optimizer,
                {.schedule = schedule(), .seed = kDropoutSeed, .max_grad_norm = max_grad_norm}) {}

  static std::unique_ptr<TinyModel> sharded(distributed::World& world) {
    auto model = tiny_model("gpt", {.dtype = DType::kF64});
    model->parallelize({.mesh = world.mesh(), .precision = models::precision_named("f64")});
    nn::initialize(model->module(), {.seed = 3, .device = world.device()});
    return model;
  }
  nn::Parameter parameter(const std::string& name) { return model->module().get_parameter(name); }

  LetterTokenizer tokenizer;
  std::unique_ptr<TinyModel> model;
  models::LanguageTask task;
  nn::optim::SGD optimizer;
  models::Trainer trainer;
};

// ---- the same run by hand ----

struct ByHand {
  std::vector<double> losses, norms;
  double eval_loss = 0, bits_per_byte = 0;
};

struct Rows {
  Tensor tokens, targets;
};
Rows rows_of(const PackedSequences& text, std::span<const std::int64_t> sequences) {
  std::vector<std::int64_t> tokens, targets;
  for (const std::int64_t sequence : sequences) {
    std::vector<std::int64_t> row(kTinyLength + 1);
    text.read(sequence, row);
    tokens.insert(tokens.end(), row.begin(), row.end() - 1);
    targets.insert(targets.end(), row.begin() + 1, row.end());
  }
  const Shape shape{static_cast<std::int64_t>(sequences.size()), kTinyLength};
  return {Tensor::from_vector(tokens, shape), Tensor::from_vector(targets, shape)};
}

class PlainSgd {
 public:
  explicit PlainSgd(nn::Module& model)
      : parameters_(model.parameters()), momenta_(parameters_.size()) {}

  // Returns the norm of all gradients before they are clipped to kMaxNorm.
  double step(double rate) {
    double squares = 0;
    for (const nn::Parameter& parameter : parameters_) {
      for (const double g : parameter.grad().to_vector<double>()) squares += g * g;
    }
    const double norm = std::sqrt(squares);
    const double factor = std::min(1.0, kMaxNorm / (norm + 1e-6));
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const Tensor& tensor = parameters_[p].local().tensor();
      auto values = tensor.to_vector<double>();
      const auto gradient = parameters_[p].grad().to_vector<double>();
      const bool first = momenta_[p].empty();
      momenta_[p].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double g = factor * gradient[i];
        momenta_[p][i] = first ? g : kMomentum * momenta_[p][i] + g;
        values[i] -= rate * momenta_[p][i];
      }
      copy_(tensor, Tensor::from_vector(values, tensor.shape()));
      parameters_[p].zero_grad();
    }
    return norm;
  }

 private:
  std::vector<nn::Parameter> parameters_;
  std::vector<std::vector<double>> momenta_;
};

ByHand run_by_hand() {
  const auto model = tiny_model("gpt", {.dtype = DType::kF64});
  nn::initialize(model->module(), {.seed = 3});
  const models::LanguageModel language = model->language_model();
  nn::data::BatchOrder order(kSequences, {.batch = kBatch, .seed = kOrderSeed});
  PlainSgd sgd(model->module());
  ByHand result;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const random::StepScope scope({.seed = kDropoutSeed, .step = static_cast<std::uint64_t>(step)});
    const Rows rows = rows_of(train_text(), order.samples_of(step));
    const Variable loss = cross_entropy(language.forward(rows.tokens, {}).logits, rows.targets);
    backward(loss);
    result.losses.push_back(loss.item<double>());
    result.norms.push_back(sgd.step(kRate * schedule()(step - 1)));
  }
  model->module().eval();
  const NoGradGuard no_grad;
  const LetterTokenizer tokenizer;
  double sum = 0, bytes = 0;
  for (std::int64_t i = 0; i < validation_text().size(); ++i) {
    const Rows rows = rows_of(validation_text(), std::vector{i});
    const Variable logits = language.forward(rows.tokens, {}).logits;
    sum += cross_entropy(logits, rows.targets).item<double>() * kTinyLength;
    const auto targets = rows.targets.to_vector<std::int64_t>();
    const std::vector<std::int32_t> text(targets.begin(), targets.end());
    bytes += static_cast<double>(tokenizer.decode(text).size());
  }
  result.eval_loss = sum / static_cast<double>(validation_text().size() * kTinyLength);
  result.bits_per_byte = sum / std::log(2.0) / bytes;
  return result;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

TESSERA_RANK_TEST("training on text equals a run by hand, on any number of ranks", "[trainer]") {
  const ByHand wanted = run_by_hand();
  Run run(t.world());
  int cut = 0;
  for (std::size_t step = 1; step <= kSteps; ++step) {
    const models::StepMetrics metrics = run.trainer.step();
    const double loss = wanted.losses[step - 1], norm = wanted.norms[step - 1];
    cut += norm > kMaxNorm;
    t.check(near(metrics.loss, loss), "step {}: loss {:.17g}, wanted {:.17g}", step, metrics.loss,
            loss);
    t.check(near(metrics.grad_norm, norm), "step {}: norm {:.17g}, wanted {:.17g}", step,
            metrics.grad_norm, norm);
    const std::int64_t samples = step % 3 == 0 ? 3 : 5;
    t.check(metrics.samples == samples && metrics.tokens == samples * kTinyLength,
            "step {}: {} samples, {} tokens", step, metrics.samples, metrics.tokens);
    t.check(metrics.learning_rate == kRate * schedule()(metrics.step - 1), "rate {}",
            metrics.learning_rate);
    t.check(!metrics.auxiliary_loss && !metrics.loss_scale && !metrics.skipped,
            "step {}: figures of other models", step);
  }
  t.check(0 < cut && cut < kSteps, "{} of {} gradients were cut down", cut, kSteps);
  const models::EvalMetrics eval = run.trainer.evaluate();
  t.check(eval.step == kSteps, "evaluated after {}", eval.step);
  t.check(near(eval.loss, wanted.eval_loss), "loss {:.17g}, wanted {:.17g}", eval.loss,
          wanted.eval_loss);
  t.check(near(eval.bits_per_byte.value_or(0), wanted.bits_per_byte),
          "{:.17g} bits a byte, wanted {:.17g}", eval.bits_per_byte.value_or(0),
          wanted.bits_per_byte);
  t.check(!eval.accuracy, "text has no accuracy");
}

TESSERA_RANK_TEST("bytes and collectives of a step on text are those of its records", "[trainer]") {
  Run run(t.world());
  run.trainer.step();
  models::StepMetrics metrics;
  std::vector<CollectiveRecord> records = collectives_of([&] { metrics = run.trainer.step(); });
  // The two gathers of the ranks' metrics are counted in no step.
  std::int64_t figures = 0, bytes = 0, count = 0;
  for (const CollectiveRecord& record : records) {
    if (record.label == "metrics") {
      ++figures;
    } else if (record.group_size > 1) {
      bytes += record.bytes_sent;
      ++count;
    }
  }
  t.check(figures == 2, "{} gathers of figures", figures);
  std::int64_t all_bytes = 0, all_count = 0;
  for (const std::string& text : t.gather_text(fmt::format("{} {}", bytes, count))) {
    all_bytes += std::stoll(text);
    all_count += std::stoll(text.substr(text.find(' ')));
  }
  t.check(metrics.comm_bytes == all_bytes, "{} bytes, wanted {}", metrics.comm_bytes, all_bytes);
  t.check(metrics.collectives == all_count, "{} collectives, wanted {}", metrics.collectives,
          all_count);
  t.check((all_bytes > 0) == (t.size() > 1), "{} bytes", all_bytes);
  t.check(metrics.peak_bytes > metrics.gathered_peak_bytes, "{} peak, {} gathered",
          metrics.peak_bytes, metrics.gathered_peak_bytes);
}

TESSERA_RANK_TEST("every rank reports the same of text, but for its clock", "[trainer]") {
  Run run(t.world());
  std::string lines;
  for (int step = 0; step < 4; ++step) {
    models::StepMetrics metrics = run.trainer.step();
    t.check(metrics.step_ms > 0, "{} ms", metrics.step_ms);
    t.check(near(metrics.tokens_per_second(),
                 static_cast<double>(metrics.tokens) / metrics.step_ms * 1000),
            "{} tokens a second", metrics.tokens_per_second());
    metrics.step_ms = 0;
    lines += json_line(metrics, DType::kF64) + "\n";
  }
  lines += json_line(run.trainer.evaluate(), DType::kF64);
  t.check_same_on_all_ranks(lines, "metrics");
}

TESSERA_RANK_TEST("evaluation on text leaves mode and model as they were", "[trainer]") {
  Run run(t.world()), other(t.world());
  run.trainer.step();
  other.trainer.step();
  const models::EvalMetrics first = run.trainer.evaluate(), second = run.trainer.evaluate();
  t.check(first.loss == second.loss, "{} then {}", first.loss, second.loss);
  t.check(run.model->module().is_training(), "the model was left in evaluation mode");
  const double evaluated = run.trainer.step().loss, plain = other.trainer.step().loss;
  t.check(evaluated == plain, "after an evaluation the loss is {}, without {}", evaluated, plain);
}

TESSERA_RANK_TEST("a negative number of batches cannot be read ahead", "[trainer]") {
  Run run(t.world());
  t.check_throws<InvalidArgument>("prefetch is -1", [&] {
    models::LanguageTask task(t.world(), run.model->language_model(), train_text(),
                              validation_text(), run.tokenizer, {.prefetch = -1});
  });
}

TESSERA_RANK_TEST("text is evaluated a few sequences at a time", "[trainer]") {
  Run run(t.world());
  const double whole = run.trainer.evaluate().loss;
  models::LanguageTask task(t.world(), run.model->language_model(), train_text(), validation_text(),
                            run.tokenizer, {.batch = kBatch, .micro_batch = 1});
  std::int64_t most = 0;
  HookHandle hook = run.model->module().register_forward_pre_hook(
      [&most](nn::Module&, const nn::VisitVariables& arguments) {
        arguments([&most](Variable& tokens) { most = std::max(most, tokens.dim(0)); });
      });
  const double parts = task.evaluate().loss;
  hook.remove();
  t.check(near(parts, whole), "{:.17g} in parts, {:.17g} before", parts, whole);
  t.check(most <= 1, "{} sequences at a time", most);
}

// ---- errors ----

// Only token 18, which stands for no text, or a token of another tokenizer.
class OneToken final : public models::data::TokenSpan {
 public:
  explicit OneToken(std::int64_t token) : token_(token) {}
  std::int64_t size() const override { return 4 * kTinyLength + 1; }
  void read(std::int64_t, std::span<std::int64_t> out) const override {
    std::fill(out.begin(), out.end(), token_);
  }

 private:
  std::int64_t token_;
};

TESSERA_RANK_TEST("text without bytes has no bits a byte, unknown tokens are refused",
                  "[trainer]") {
  Run run(t.world());
  const auto evaluate = [&](std::int64_t token) {
    const PackedSequences text(std::make_shared<OneToken>(token), kTinyLength);
    models::LanguageTask task(t.world(), run.model->language_model(), train_text(), text,
                              run.tokenizer, {.batch = t.size()});
    return task.evaluate();
  };
  const models::EvalMetrics metrics = evaluate(kTinyVocabulary - 1);
  t.check(metrics.loss > 0 && !metrics.bits_per_byte, "loss {}, bits a byte {}", metrics.loss,
          metrics.bits_per_byte.value_or(0));
  if (t.size() > 1) return;  // the others would wait for the rank that throws
  t.check_throws<InvalidArgument>("the text has token 19, the tokenizer 19 tokens",
                                  [&] { evaluate(kTinyVocabulary); });
}

TESSERA_RANK_TEST_WITH("a data_mesh of several axes is refused", "[trainer]", {.worlds = {2}}) {
  const distributed::DeviceMesh mesh({"a", "b"}, {1, 2}, t.world().group(), t.world().device());
  Run run(t.world());
  t.check_throws<InvalidArgument>("it has one axis, of the ranks that share the batch", [&] {
    models::LanguageTask task(t.world(), run.model->language_model(), train_text(),
                              validation_text(), run.tokenizer, {.data_mesh = mesh});
  });
  t.check_throws<InvalidArgument>("it has one axis, of the ranks that share the batch", [&] {
    models::Trainer trainer(t.world(), run.task, run.optimizer, {.data_mesh = mesh});
  });
  t.check_throws<InvalidArgument>("micro_batch is -1", [&] {
    models::LanguageTask task(t.world(), run.model->language_model(), train_text(),
                              validation_text(), run.tokenizer, {.micro_batch = -1});
  });
}

TESSERA_RANK_TEST("options of a run on text outside their ranges are refused", "[trainer]") {
  t.check_throws<InvalidArgument>("max_grad_norm is -1", [&] { Run run(t.world(), -1); });
  const LetterTokenizer tokenizer;
  const auto model = Run::sharded(t.world());
  const auto make = [&](const PackedSequences& train, const PackedSequences& validation,
                        std::int64_t batch) {
    models::LanguageTask task(t.world(), model->language_model(), train, validation, tokenizer,
                              {.batch = batch});
    nn::optim::SGD sgd(model->module().parameters(), {.lr = 0.1});
    models::Trainer trainer(t.world(), task, sgd, {.micro_batch = -2});
  };
  const PackedSequences long_text(letter_stream(100, 1), kTinyLength + 1);
  t.check_throws<InvalidArgument>("sequences of 8 tokens, the model computes 7",
                                  [&] { make(long_text, validation_text(), 1); });
  t.check_throws<InvalidArgument>("sequences of 8 tokens, the model computes 7",
                                  [&] { make(train_text(), long_text, 1); });
  t.check_throws<InvalidArgument>("batch", [&] { make(train_text(), validation_text(), 0); });
  t.check_throws<InvalidArgument>("micro_batch is -2",
                                  [&] { make(train_text(), validation_text(), 1); });
  models::LanguageModel narrow = model->language_model();
  narrow.vocab_size = 18;
  t.check_throws<InvalidArgument>("letters has 19 tokens, the model 18 logits", [&] {
    models::LanguageTask task(t.world(), narrow, train_text(), validation_text(), tokenizer, {});
  });
}

}  // namespace
}  // namespace tessera::testing
