// The cost of one small operation beside its arithmetic, in nanoseconds:
//
//     tools/bazel run //tools/bench:bench_autograd
//
// All tensors have 16 f32 elements, so the arithmetic costs almost nothing. One thread, without a
// trace. A round is 1,000 operations; a figure is the median of 1,000 rounds, divided by the
// operations of a round. Other load on the machine changes medians little.
//
//     tensor     the operation alone; each result is freed before the next one is made
//     recorded   y = op(x, b) of variables that require gradients; each result and node is freed
//     chain      y = op(y, b) a thousand times, as in a model; then the graph is freed ("destroy"),
//                or backward runs through it ("backward": per node, with gradients of leaves)
#include <cstdio>
#include <memory>

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tools/bench/bench_host_cost.h"

namespace tessera {
namespace {

const HostCost kCost;

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
  print("create and destroy", kCost.each([&] { Tensor::empty(shape); }));
  print("view (transpose)", kCost.each([&] { static_cast<void>(square.transpose(0, 1)); }));
  print("add", kCost.each([&] { add(a, b); }));
  print("mul", kCost.each([&] { mul(a, b); }));
  print("relu", kCost.each([&] { relu(a); }));
  print("mul with a number", kCost.each([&] { mul(a, 2); }));
  print("add a row to [4, 4]", kCost.each([&] { add(square, row); }));
}

void measure_recorded() {
  std::printf("recorded\n");
  const Variable x = parameter({16}), b = parameter({16});
  // Keep the leaves' nodes alive, as the graph of a model would.
  const GradientEdge hold_x = x.gradient_edge(), hold_b = b.gradient_edge();
  print("add", kCost.each([&] { add(x, b); }));
  print("mul", kCost.each([&] { mul(x, b); }));
  print("relu", kCost.each([&] { relu(x); }));
  print("mul with a number", kCost.each([&] { mul(x, 2); }));
}

void measure_chains() {
  std::printf("chain\n");
  const Variable x = parameter({16}), b = parameter({16}), constant(ones({16}));
  print_chain("add (b: leaf)", kCost.chain(x, [&](const Variable& y) { return add(y, b); }));
  print_chain("add (b: constant)",
              kCost.chain(x, [&](const Variable& y) { return add(y, constant); }));
  print_chain("mul (b: leaf)", kCost.chain(x, [&](const Variable& y) { return mul(y, b); }));
  print_chain("relu", kCost.chain(x, [&](const Variable& y) { return relu(y); }));
}

}  // namespace
}  // namespace tessera

int main() {
  tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, 1));
  tessera::measure_tensors();
  tessera::measure_recorded();
  tessera::measure_chains();
}
