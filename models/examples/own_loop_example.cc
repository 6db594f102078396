// A model of your own in a loop of your own, shown as a run of `tessera train` is: metrics.jsonl,
// event files for TensorBoard, report.html. Then a new head on the hidden states of a run.
//
//     tessera train gpt --preset tiny --out /tmp/run
//     own_loop_example /tmp/own /tmp/run

#include <cstdio>
#include <string>

#include "tessera/tessera.h"

using namespace tessera;

constexpr int64_t kRows = 64;

// Points of a square, and whether they lie in a circle.
struct Points {
  Variable x;     // [kRows, 2]
  Tensor inside;  // [kRows], 0 or 1
};
Points points() {
  const Tensor x = 2 * rand({kRows, 2}) - 1;
  return {.x = Variable(x), .inside = cast(lt(sum(x * x, {1}), 0.6), DType::kI64)};
}

class Net final : public nn::Layer<Net> {
 public:
  Net() : in_({.in = 2, .out = 64}), out_({.in = 64, .out = 2}) {
    register_module("in", in_);
    register_module("out", out_);
  }
  Variable forward(const Variable& x) { return out_(relu(in_(x))); }

 private:
  nn::Linear in_, out_;
};

models::EvalMetrics evaluate(Net& model, int64_t step) {
  const models::EvalScope scope(model);
  const Points p = points();
  const Variable y = model(p.x);
  return {.step = step,
          .loss = cross_entropy(y, p.inside).item<double>(),
          .accuracy = nn::accuracy(y, p.inside).item<double>()};
}

double train(Net& model, const std::string& folder) {
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  models::watch::MetricsWriter metrics(folder);    // metrics.jsonl
  models::watch::TensorBoardWriter board(folder);  // tensorboard --logdir
  board.add_text("model", nn::summary(model));
  for (int64_t step = 1; step <= 200; ++step) {
    const Points p = points();
    const Variable loss = cross_entropy(model(p.x), p.inside);
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    const models::StepMetrics now{.step = step, .loss = loss.item<double>(), .samples = kRows};
    metrics.write(now);
    board.add_scalar("train/loss", now.loss, step);
    if (step % 50 == 0) metrics.write(evaluate(model, step));
  }
  models::watch::write_report(folder);  // report.html
  return *evaluate(model, 200).accuracy;
}

// Tells capitals from small letters by the hidden states of a run, which stays as it is.
double train_head(models::Run& run) {
  nn::freeze(run.module(), "**");
  nn::Linear head({.in = int64_t(run.config().sizes.at("dim")), .out = 2});
  nn::initialize(head);
  nn::optim::AdamW optimizer(head.parameters(), {.lr = 3e-2});
  double last = 0;
  for (int step = 0; step < 100; ++step) {
    const Tensor small = randint(0, 2, {kRows});
    const Tensor letters = randint('A', 'Z' + 1, {kRows, 8}) + unsqueeze(small, 1) * 32;
    const Variable loss = cross_entropy(head(mean(run.hidden(Variable(letters)), {1})), small);
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item<double>();
  }
  return last;
}

int main(int argc, char** argv) {
  Net model;
  nn::initialize(model, {.seed = 1});
  const double right = train(model, argc > 1 ? argv[1] : "own_run");
  std::printf("accuracy %.3f\n", right);
  TESSERA_CHECK(right > 0.9, "example", "the accuracy is {}", right);
  if (argc < 3) return 0;
  models::Run run = models::open_run(argv[2]);
  const double loss = train_head(run);
  std::printf("a new head on %s: loss %.3f\n", run.config().model.c_str(), loss);
  TESSERA_CHECK(loss < 0.3, "example", "the head ended with a loss of {}", loss);
}
