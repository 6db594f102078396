// The speed of operations, as ratios that are comparable between machines:
//
//     tools/bazel run //tensor/kernels/cpu:bench_ops
//
// Operations relative to memcpy; for products see bench_matmul. A ratio above 1 is faster than
// memcpy. Both sides of a pair alternate, and the best of many runs counts, so that a busy machine
// affects both alike.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

constexpr int kRuns = 25;

template <class Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Pair {
  double ours = 1e9;
  double yardstick = 1e9;
};

template <class Ours, class Yardstick>
Pair best(const Ours& ours, const Yardstick& yardstick) {
  Pair pair;
  for (int run = 0; run < kRuns; ++run) {
    pair.ours = std::min(pair.ours, seconds(ours));
    pair.yardstick = std::min(pair.yardstick, seconds(yardstick));
  }
  return pair;
}

template <class Op>
void compare_elementwise(const char* name, const Tensor& x, const Op& op) {
  const Tensor copy = zeros_like(x);
  const auto bytes = static_cast<std::size_t>(x.numel()) * dtype_size(x.dtype());
  const Pair pair =
      best(op, [&] { std::memcpy(copy.storage().data(), x.storage().data(), bytes); });
  std::printf("  %-16s %7.1f us  %6.2f ns an element  ratio to memcpy %.2f\n", name,
              pair.ours * 1e6, pair.ours * 1e9 / static_cast<double>(x.numel()),
              pair.yardstick / pair.ours);
}

void compare_norms(const Tensor& x, const Tensor& row) {
  const NormStatistics layer = layer_norm_forward(x, row, row).statistics;
  compare_elementwise("layer_norm", x, [&] { layer_norm(x, row, row); });
  compare_elementwise("  its derivative", x, [&] { row_norm_backward(x, x, row, layer); });
  compare_elementwise("rms_norm", x, [&] { rms_norm(x, row); });
  const Tensor half = cast(x, DType::kBF16);
  compare_elementwise("rms_norm, bf16", half, [&] { rms_norm(half, row); });
  const Tensor image = x.view({8, 64, 1024}), channels = ones({64});
  for (const auto& [name, in, w] : {std::tuple("batch_norm columns", x, row),
                                    std::tuple("batch_norm images", image, channels)}) {
    const NormStatistics statistics = batch_norm_forward(in, w, w).statistics;
    compare_elementwise(name, x, [&, in = in, w = w] { batch_norm(in, w, w); });
    compare_elementwise("  sums", x, [&, in = in] { batch_norm_sums(in, in, statistics); });
  }
}

void compare_all() {
  std::printf("elementwise, f32, 1024 x 512\n");
  const Tensor x = full({1024, 512}, 0.5), row = ones({512}),
               targets = zeros({1024}, {.dtype = DType::kI64});
  compare_elementwise("clone", x, [&] { clone(x); });
  compare_elementwise("relu", x, [&] { relu(x); });
  compare_elementwise("add a row", x, [&] { add(x, row); });
  compare_elementwise("exp", x, [&] { exp(x); });
  compare_elementwise("log", x, [&] { log(x); });
  compare_elementwise("tanh", x, [&] { tanh(x); });
  compare_elementwise("gelu", x, [&] { gelu(x); });
  compare_elementwise("gelu_backward", x, [&] { gelu_backward(x, x); });
  compare_elementwise("sum", x, [&] { sum(x); });
  compare_elementwise("sum of columns", x, [&] { sum(x, {0}); });
  compare_elementwise("sum of rows", x, [&] { sum(x, {1}); });
  compare_elementwise("sum_of_squares", x, [&] { sum_of_squares(x); });
  compare_elementwise("softmax", x, [&] { softmax(x); });
  compare_elementwise("softmax, dim 0", x, [&] { softmax(x, 0); });
  compare_elementwise("cross entropy", x, [&] { cross_entropy_rows(x, targets); });
  compare_norms(x, row);
  compare_elementwise("dropout", x, [&] { dropout(x, 0.5, {1}, random::whole(x.shape())); });
  const Tensor heads = x.view({64, 16, 8, 64});
  const RotaryTable table = rotary_table(16, 64);
  compare_elementwise("rotary", x, [&] { rotary(heads, table); });
  const Tensor p = clone(x), m = zeros_like(x), v = zeros_like(x);
  compare_elementwise("adam_step", x, [&] {
    adam_step({{.parameter = p, .gradient = x, .exp_avg = m, .exp_avg_sq = v}});
  });
}

}  // namespace
}  // namespace tessera

int main() {
  for (int threads : {1, 2}) {
    std::printf("---- %d thread%s\n", threads, threads == 1 ? "" : "s");
    tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, threads));
    tessera::compare_all();
  }
}
