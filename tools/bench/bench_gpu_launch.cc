// The host's time to launch one small operation on a GPU:
//
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_launch
//
// Tensors are small, and the host never waits inside a measured round, so a figure is the issuing
// thread's own time. A round has so few operations that the driver's queue never fills up. Prints a
// line of JSON for each operation and pass:
//
//     tensor     the operation alone, nothing recorded
//     recorded   y = op(x) of a variable that requires a gradient; result and node are freed
//     chain      y = op(y), as in a model: the graph stays until the chain is done
//     backward   through the chain, with gradients of leaves; per node
//
// `us` is the time of one operation, `launches` the number of kernels of one, and `us_per_launch`,
// which has the goal, the time per kernel; `ratio` is goal_us / us_per_launch. With --smoke: a few
// of each, also without a GPU.
#include <fmt/format.h>

#include <memory>

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tools/bench/bench_gpu_support.h"
#include "tessera/tools/bench/bench_host_cost.h"

namespace tessera {
namespace {

constexpr double kGoalUs = 4;

class Launches {
 public:
  explicit Launches(const BenchRun& run) : run_(run) {
    cost_ = run.smoke ? HostCost{.rounds = 1, .ops = 3, .warm_up = 1}
                      : HostCost{.rounds = 300, .ops = 100, .warm_up = 20};
    cost_.settle = [device = run.device] { current_stream(device).synchronize(); };
  }

  // `op` maps a Tensor, and a Variable, of x's shape to one of the same shape.
  template <class Op>
  void measure(const char* name, const Tensor& x, const Op& op) const {
    print(name, "tensor", cost_.each([&] { op(x); }), kernels_of([&] { op(x); }));
    const Variable leaf(x, /*requires_grad=*/true);
    const GradientEdge held = leaf.gradient_edge();  // as the graph of a model would
    const double recorded = kernels_of([&] { op(leaf); });
    print(name, "recorded", cost_.each([&] { op(leaf); }), recorded);
    const ChainCost chain = cost_.chain(leaf, op);
    print(name, "chain", chain.record, recorded);
    print(name, "backward", chain.backward, kernels_of_backward(leaf, op));
  }

 private:
  template <class Body>
  static double kernels_of(const Body& body) {
    ExecutionTrace trace;
    current_rank_context()->set_trace(&trace);
    body();
    current_rank_context()->set_trace(nullptr);
    return static_cast<double>(trace.all<KernelRecord>().size());
  }

  template <class Op>
  double kernels_of_backward(const Variable& leaf, const Op& op) const {
    Variable y = leaf;
    for (int i = 0; i < cost_.ops; ++i) y = op(y);
    const Tensor gradient = ones(leaf.shape());
    return kernels_of([&] { backward(y, {.gradient = gradient}); }) / cost_.ops;
  }

  void print(const char* op, const char* pass, double nanoseconds, double kernels) const {
    const double us = nanoseconds * 1e-3, each = us / kernels;
    print_row(run_, fmt::format(R"("bench": "launch", "op": "{}", "pass": "{}")", op, pass),
              fmt::format(R"("us": {:.3f}, "launches": {:.2f}, "us_per_launch": {:.3f}, )"
                          R"("goal_us": {}, "ratio": {:.3f}, "goal": 1.0)",
                          us, kernels, each, kGoalUs, kGoalUs / each));
  }

  BenchRun run_;
  HostCost cost_;
};

// Passes plain tensors to operations on tensors, and leaves to those on variables.
const Tensor& same_kind(const Tensor&, const Variable& leaf) { return leaf.tensor(); }
const Variable& same_kind(const Variable&, const Variable& leaf) { return leaf; }

void measure_all(const BenchRun& run) {
  const Launches launches(run);
  const Tensor x = ones({16, 16});
  const Variable b(ones({16, 16}), true), row(ones({16}), true);
  const Tensor index = zeros({16}, {.dtype = DType::kI64});
  launches.measure("add", x, [&](const auto& y) { return add(y, same_kind(y, b)); });
  launches.measure("add a row", x, [&](const auto& y) { return add(y, same_kind(y, row)); });
  launches.measure("mul", x, [&](const auto& y) { return mul(y, same_kind(y, b)); });
  launches.measure("mul with a number", x, [&](const auto& y) { return mul(y, 0.5); });
  launches.measure("relu", x, [&](const auto& y) { return relu(y); });
  launches.measure("gelu", x, [&](const auto& y) { return gelu(y); });
  launches.measure("softmax", x, [&](const auto& y) { return softmax(y); });
  launches.measure("layer_norm", x, [&](const auto& y) {
    return layer_norm(y, same_kind(y, row), same_kind(y, row));
  });
  launches.measure("linear", x,
                   [&](const auto& y) { return linear(y, same_kind(y, b), same_kind(y, row)); });
  launches.measure("index_select", x, [&](const auto& y) { return index_select(y, 0, index); });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const tessera::BenchStart start = tessera::start_benchmark(argc, argv);
  if (!start.run) return start.exit_status;
  const tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, 1));
  tessera::measure_all(*start.run);
  return 0;
}
