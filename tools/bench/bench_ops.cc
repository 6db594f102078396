// The time of operations and their backwards, on a GPU or on the CPU: every differentiable operation
// except views, in-place operations and aliases, and some of each kind without a derivative:
//
//     tools/bazel run --config=cuda //tools/bench:bench_ops
//     tools/bazel run //tools/bench:bench_ops -- --device cpu
//
// On the CPU with the threads of OMP_NUM_THREADS, or of all cores, and with smaller operands.
//
// Prints a line of JSON for each: {"op", "shape", "dtype", "pass", "result", "us"}; `result` is the
// shape of the operation's result. `forward` records, as in a model; `backward` is grad() of all
// inputs that require a gradient, with the graph retained; operations without a derivative are only
// called. With --smoke: everything once and small, also without a GPU.
//
// bench_ops_torch.py measures the same in PyTorch, in turns with this program:
//
//     --device cpu    instead of the first GPU
//     --table         prints the rows, one line each, without running them (with --smoke: the small
//                     ones)
//     --serve         for each line "ROW PASS" on stdin, ROW counting from 0, measures that once and
//                     prints its line
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/tools/bench/bench_gpu_support.h"
#include "tessera/tools/bench/bench_ops_table.h"

namespace tessera {
namespace {

// An operation on one shape and dtype.
struct Row {
  const BenchOp* op;
  Shape shape;
  DType dtype;
};

std::vector<Row> rows(const BenchRun& run) {
  std::vector<Row> all;
  for (const BenchOp& op : bench_ops()) {
    const auto& [gpu, cpu, smoke] = op.shapes;
    for (const Shape& shape : run.smoke ? std::vector{smoke} : run.device == kCpu ? cpu : gpu) {
      all.push_back({.op = &op, .shape = shape, .dtype = DType::kF32});
      if (!op.only_f32) all.push_back({.op = &op, .shape = shape, .dtype = DType::kBF16});
    }
  }
  return all;
}

std::string described(const Row& row) {
  return fmt::format(R"("op": "{}", "shape": {}, "dtype": "{}")", row.op->name, row.shape.str(),
                     dtype_name(row.dtype));
}

void print_table(const BenchRun& run) {
  for (const Row& row : rows(run)) {
    fmt::print("{{{}, \"passes\": [\"forward\"{}]}}\n", described(row),
               row.op->has_backward ? ", \"backward\"" : "");
  }
}

// One pass of a row, ready to be measured repeatedly.
class Prepared {
 public:
  Prepared(const BenchRun& run, const Row& row, bool backward)
      : run_(run), backward_(backward), inputs_({.dtype = row.dtype, .device = run.device}) {
    const OpCall call = row.op->make(inputs_, row.shape);
    body_ = [call] { call(); };
    const Variable result = call();
    if (result.defined()) result_shape_ = result.shape().str();
    if (backward) {
      result_ = {result};
      options_.gradient = random_tensor(
          result_[0].shape(), {.dtype = result_[0].dtype(), .device = run.device}, "gradient");
      options_.retain_graph = true;
      body_ = [this] { grad(result_, inputs_.variables(), options_); };
    }
    calls_ = calls_for(run, body_);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  const char* pass() const { return backward_ ? "backward" : "forward"; }
  // As JSON; "null" if there is no result.
  const std::string& result_shape() const { return result_shape_; }

  double microseconds() const {
    // Warms the GPU up again after another process used it; on the CPU, another process's threads may still compute
    // for a while, and the system has to find cores for ours.
    for (int i = 0; i < (run_.device == kCpu ? calls_ : 1); ++i) body_();
    return microseconds_per_call(run_, calls_, body_);
  }

 private:
  BenchRun run_;
  bool backward_;
  OpInputs inputs_;
  std::string result_shape_ = "null";
  std::vector<Variable> result_;
  BackwardOptions options_;
  std::function<void()> body_;
  int calls_ = 1;
};

void print_measured(const BenchRun& run, const Row& row, const Prepared& prepared, double us) {
  print_row(run,
            fmt::format(R"({}, "pass": "{}", "result": {})", described(row), prepared.pass(),
                        prepared.result_shape()),
            fmt::format(R"("us": {:.3f})", us));
}

void measure_all(const BenchRun& run) {
  for (const Row& row : rows(run)) {
    for (const bool backward : {false, true}) {
      if (backward && !row.op->has_backward) continue;
      const Prepared prepared(run, row, backward);
      std::vector<double> times;
      for (int i = 0; i < run.pairs(); ++i) times.push_back(prepared.microseconds());
      print_measured(run, row, prepared, median(times));
    }
  }
}

// Until stdin ends. Keeps the row of the last line.
int serve(const BenchRun& run) {
  const std::vector<Row> all = rows(run);
  std::string pass, held;
  std::size_t number = 0;
  std::unique_ptr<Prepared> prepared;
  while (std::cin >> number >> pass) {
    const bool backward = pass == "backward";
    if (number >= all.size() || (!backward && pass != "forward") ||
        (backward && !all[number].op->has_backward)) {
      std::cerr << "there is no row " << number << " with a pass \"" << pass << "\"\n";
      return 2;
    }
    const std::string wanted = std::to_string(number) + pass;
    if (wanted != held) {
      prepared.reset();  // the next one reuses its memory
      prepared = std::make_unique<Prepared>(run, all[number], backward);
      held = wanted;
    }
    print_measured(run, all[number], *prepared, prepared->microseconds());
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  std::vector<char*> others = {argv[0]};
  bool table = false, serves = false;
  BenchRun asked;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    asked.smoke = asked.smoke || argument == "--smoke";
    if (argument == "--table") {
      table = true;
    } else if (argument == "--serve") {
      serves = true;
    } else if (argument == "--device" && i + 1 < argc && argv[i + 1] == std::string_view("cpu")) {
      asked.device = kCpu;
      ++i;
    } else {
      others.push_back(argv[i]);
    }
  }
  if (table) {
    print_table(asked);
    return 0;
  }
  const BenchStart start =
      start_benchmark(static_cast<int>(others.size()), others.data(), asked.device);
  if (!start.run) return start.exit_status;
  if (serves) return serve(*start.run);
  measure_all(*start.run);
  return 0;
}
