// The memory bandwidth of memory-bound operations:
//
//     tools/bazel run -c opt //tensor/kernels/cpu:bench_bandwidth
//
// Bytes that an operation must read and write, divided by its time, relative to a triad a = b + 3 c
// over arrays of the same length with the same number of threads. Both alternate, and the best of
// many runs counts. The arrays are larger than the caches.
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 8192, kColumns = 2048, kCount = kRows * kColumns;
constexpr int kRuns = 15;

template <class Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Bench {
 public:
  explicit Bench(int threads) : threads_(threads), a_(kCount), b_(kCount), c_(kCount) {
    triad();  // touches every page
  }

  // `streams`: number of f32 arrays that the operation must move; 0.5 for a 16-bit array.
  template <class Op>
  void compare(const char* name, double streams, const Op& op) {
    op();
    double ours = 1e9, yardstick = 1e9;
    for (int run = 0; run < kRuns; ++run) {
      ours = std::min(ours, seconds(op));
      yardstick = std::min(yardstick, seconds([this] { triad(); }));
    }
    const double bytes = 4.0 * static_cast<double>(kCount);
    std::printf("  %-22s %6.1f GB/s  triad %6.1f GB/s  ratio %.2f\n", name,
                streams * bytes / ours * 1e-9, 3 * bytes / yardstick * 1e-9,
                streams / ours / (3 / yardstick));
  }

 private:
  void triad() {
    float* a = a_.data();
    const float *b = b_.data(), *c = c_.data();
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t i = 0; i < kCount; ++i) a[i] = b[i] + 3 * c[i];
  }

  int threads_;
  std::vector<float> a_, b_, c_;
};

void run(int threads) {
  std::printf("---- %d thread%s, f32, %lld x %lld\n", threads, threads == 1 ? "" : "s",
              static_cast<long long>(kRows), static_cast<long long>(kColumns));
  Bench bench(threads);
  const Tensor x = full({kRows, kColumns}, 0.5), y = ones_like(x), row = ones({kColumns}),
               column = ones({kRows, 1}), half = cast(x, DType::kBF16);
  bench.compare("add", 3, [&] { add(x, y); });
  bench.compare("add a row", 2, [&] { add(x, row); });
  bench.compare("mul by a column", 2, [&] { mul(x, column); });
  bench.compare("mul by a number", 2, [&] { mul(x, 3); });
  bench.compare("add_", 3, [&] { add_(y, x); });
  bench.compare("axpby_ (accumulate)", 3, [&] { axpby_(y, x, {.alpha = 0.5, .beta = 0.5}); });
  bench.compare("relu", 2, [&] { relu(x); });
  bench.compare("relu_backward", 3, [&] { relu_backward(x, y); });
  bench.compare("where", 3.25, [&, mask = gt(x, 0)] { where(mask, x, y); });
  bench.compare("clone", 2, [&] { clone(x); });
  bench.compare("cast to bf16", 1.5, [&] { cast(x, DType::kBF16); });
  bench.compare("add, bf16", 1.5, [&] { add(half, half); });
  bench.compare("sum", 1, [&] { sum(x); });
  bench.compare("sum of rows", 1, [&] { sum(x, {1}); });
  bench.compare("sum of columns", 1, [&] { sum(x, {0}); });
  bench.compare("rms_norm", 2, [&] { rms_norm(x, row); });
  bench.compare("layer_norm", 2, [&] { layer_norm(x, row, row); });
  bench.compare("softmax", 2, [&] { softmax(x); });
  const Tensor p = clone(x), m = zeros_like(x), v = zeros_like(x);
  bench.compare("sgd_step, momentum", 5, [&] {
    sgd_step({{.parameter = p, .gradient = x, .momentum = m, .lr = 0.1, .momentum_factor = 0.9}});
  });
  bench.compare("adam_step", 7, [&] {
    adam_step({{.parameter = p, .gradient = x, .exp_avg = m, .exp_avg_sq = v}});
  });
}

}  // namespace
}  // namespace tessera

int main() {
  for (int threads : {1, 2}) {
    tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, threads));
    tessera::run(threads);
  }
}
