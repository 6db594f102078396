// What one small operation costs beside its arithmetic, in nanoseconds:
//
//     tools/bazel run //tools:bench_autograd
//
// Everything is on 16 f32 elements, so that the arithmetic is next to nothing, on one thread, with
// the trace off. A round is 1,000 operations; a figure is the median of 1,000 rounds, divided by
// the operations of one. A busy machine moves medians little, a slow one moves them all.
//
//     tensor     the operation alone; each result goes before the next is made
//     recorded   y = op(x, b) of variables that require gradients; each result and its node go too
//     chain      y = op(y, b) a thousand times, as a model does; then the graph goes ("destroy"),
//     or
//                backward runs through it ("backward": per node, gradients of leaves included)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops.h"
#include "tessera/tensor/ops.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

constexpr int kRounds = 1000;
constexpr int kOps = 1000;
constexpr int kWarmUpRounds = 20;

template <class Body>
double nanoseconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double>& rounds) {
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
  std::nth_element(rounds.begin(), middle, rounds.end());
  return *middle / kOps;
}

// The median cost of `op()`.
template <class Op>
double each(const Op& op) {
  std::vector<double> rounds;
  for (int round = -kWarmUpRounds; round < kRounds; ++round) {
    const double took = nanoseconds([&] {
      for (int i = 0; i < kOps; ++i) op();
    });
    if (round >= 0) rounds.push_back(took);
  }
  return median(rounds);
}

struct ChainCost {
  double record = 0;
  double destroy = 0;
  double backward = 0;
};

// y = op(y), from `start`; op gives a Variable.
template <class Op>
ChainCost chain(const Variable& start, const Op& op) {
  std::vector<double> record, destroy, run;
  const auto build = [&](Variable& y) {
    y = start;
    for (int i = 0; i < kOps; ++i) y = op(y);
  };
  const Tensor gradient = ones(start.shape());
  for (int round = -kWarmUpRounds; round < kRounds; ++round) {
    Variable y;
    const double recorded = nanoseconds([&] { build(y); });
    const double destroyed = nanoseconds([&] { y = Variable(); });
    build(y);
    const double ran = nanoseconds([&] { backward(y, {.gradient = gradient}); });
    if (round < 0) continue;
    record.push_back(recorded);
    destroy.push_back(destroyed);
    run.push_back(ran);
  }
  return {.record = median(record), .destroy = median(destroy), .backward = median(run)};
}

void print(const char* what, double ns) { std::printf("  %-28s %8.0f ns\n", what, ns); }

void print_chain(const char* what, const ChainCost& cost) {
  std::printf("  %-28s %8.0f ns record, %6.0f ns record and destroy, %6.0f ns backward\n", what,
              cost.record, cost.record + cost.destroy, cost.backward);
}

Variable parameter(const Shape& shape) { return Variable(full(shape, 1), true); }

void measure_tensors() {
  std::printf("tensor\n");
  const Tensor a = ones({16}), b = ones({16}), square = ones({4, 4}), row = ones({4});
  const Shape shape = {16};
  print("create and destroy", each([&] { Tensor::empty(shape); }));
  print("view (transpose)", each([&] { static_cast<void>(square.transpose(0, 1)); }));
  print("add", each([&] { add(a, b); }));
  print("mul", each([&] { mul(a, b); }));
  print("relu", each([&] { relu(a); }));
  print("mul with a number", each([&] { mul(a, 2); }));
  print("add a row to [4, 4]", each([&] { add(square, row); }));
}

void measure_recorded() {
  std::printf("recorded\n");
  const Variable x = parameter({16}), b = parameter({16});
  // What keeps their nodes alive, as the graph of a model would.
  const GradientEdge hold_x = x.gradient_edge(), hold_b = b.gradient_edge();
  print("add", each([&] { add(x, b); }));
  print("mul", each([&] { mul(x, b); }));
  print("relu", each([&] { relu(x); }));
  print("mul with a number", each([&] { mul(x, 2); }));
}

void measure_chains() {
  std::printf("chain\n");
  const Variable x = parameter({16}), b = parameter({16}), constant(ones({16}));
  print_chain("add (b: leaf)", chain(x, [&](const Variable& y) { return add(y, b); }));
  print_chain("add (b: constant)", chain(x, [&](const Variable& y) { return add(y, constant); }));
  print_chain("mul (b: leaf)", chain(x, [&](const Variable& y) { return mul(y, b); }));
  print_chain("relu", chain(x, [&](const Variable& y) { return relu(y); }));
}

}  // namespace
}  // namespace tessera

int main() {
  tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, 1));
  tessera::measure_tensors();
  tessera::measure_recorded();
  tessera::measure_chains();
}
