// What this machine's CPU can do at most, as the measure of everything else:
//
//     OMP_NUM_THREADS=2 tools/bazel run //tools/bench:bench_limits
//
// A line of JSON for each figure, with the number of threads:
//
//     product N    billions of operations per second of our product of matrices of N x N, in f32 and
//                  in bf16 (two operations for a multiplication and an addition)
//     triad        billions of bytes per second of a[i] = b[i] + s * c[i] on arrays that no cache
//                  holds: two reads and a write of 4 bytes for each element, as STREAM counts them
//
// Each is the best of some tries: other programs on the machine can only make them smaller. With
// --smoke: small, once, without figures. With --turn N f32 SECONDS: only the times of the products of N x N in f32 (or bf16) that
// fit into so many seconds, which compare_pytorch measures in turns with training.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tools/bench/bench_gpu_support.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {
namespace {

// One that a core's second-level cache nearly holds, and others, not all powers of two.
const std::vector<std::int64_t> kExtents = {384, 512, 768, 1000, 1024, 1536, 2048};

void print_limit(bool smoke, const std::string& name, std::string_view dtype, const char* unit,
                 double figure) {
  fmt::print(R"({{"bench": "limits", "limit": "{}", "dtype": "{}", "threads": {}, "{}": {}}})"
             "\n",
             name, dtype, current_rank_context()->threads(), unit,
             smoke ? "null" : fmt::format("{:.2f}", figure));
}

// Microseconds of products of n x n, one after another; at least two.
std::vector<double> product_times(std::int64_t n, DType dtype, double seconds) {
  const Tensor a = random_tensor({n, n}, {.dtype = dtype}, "a");
  const Tensor b = random_tensor({n, n}, {.dtype = dtype}, "b"), out = empty_like(a);
  std::vector<double> times;
  for (double spent = 0; times.size() < 2 || spent < seconds * 1e6; spent += times.back())
    times.push_back(microseconds([&] { matmul_into(out, a, b, {}); }));
  return times;
}

// Operations per second of the fastest of several products of n x n.
double product(std::int64_t n, DType dtype, double seconds) {
  const std::vector<double> times = product_times(n, dtype, seconds);
  return 2e6 * static_cast<double>(n * n * n) / *std::min_element(times.begin(), times.end());
}

// The first product, which begins with cold caches, is left out.
void print_turn(std::int64_t n, DType dtype, double seconds) {
  const std::vector<double> times = product_times(n, dtype, seconds);
  fmt::print(
      R"({{"bench": "limits", "limit": "product {}", "dtype": "{}", "product_us": [{:.1f}]}})"
      "\n",
      n, dtype_name(dtype), fmt::join(times.begin() + 1, times.end(), ", "));
}

constexpr std::int64_t kBlock = 1024;

// Blocks [begin, end).
void triad_blocks(float* __restrict a, const float* __restrict b, const float* __restrict c,
                  std::int64_t begin, std::int64_t end) {
  for (std::int64_t block = begin; block < end; ++block)
    for (std::int64_t i = block * kBlock; i < (block + 1) * kBlock; ++i) a[i] = b[i] + 0.5F * c[i];
}

// Calls body(begin, end) on as many threads as operations use.
template <class Body>
void on_threads(std::int64_t blocks, const Body& body) {
  const std::int64_t threads = current_rank_context()->threads();
  std::vector<std::jthread> running;
  for (std::int64_t i = 0; i < threads; ++i)
    running.emplace_back([=] { body(blocks * i / threads, blocks * (i + 1) / threads); });
}

// Bytes per second.
double triad(bool smoke) {
  const std::int64_t blocks = smoke ? 3 : 1 << 16;  // of 256 MiB for each array
  const auto made = [&] {
    return std::unique_ptr<float[]>(new float[static_cast<std::size_t>(blocks * kBlock)]);
  };
  const auto a = made(), b = made(), c = made();
  // The thread that first writes a page decides where in memory it is.
  on_threads(blocks, [&](std::int64_t begin, std::int64_t end) {
    for (float* array : {a.get(), b.get(), c.get()})
      std::fill(array + begin * kBlock, array + end * kBlock, 1.0F);
  });
  double best = 0;
  for (int run = 0; run < (smoke ? 1 : 15); ++run) {
    const double us = microseconds([&] {
      on_threads(blocks, [&](std::int64_t begin, std::int64_t end) {
        triad_blocks(a.get(), b.get(), c.get(), begin, end);
      });
    });
    best = std::max(best, static_cast<double>(3 * sizeof(float) * blocks * kBlock) / us * 1e6);
  }
  return best;
}

void measure(bool smoke) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t n : smoke ? std::vector<std::int64_t>{8} : kExtents)
      print_limit(smoke, fmt::format("product {}", n), dtype_name(dtype), "gflops",
                  product(n, dtype, smoke ? 0 : 0.5) / 1e9);
  print_limit(smoke, "triad", dtype_name(DType::kF32), "gb_per_s", triad(smoke) / 1e9);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool smoke = first == "--smoke" && argc == 2;
  if (first == "--turn" && argc == 5) {
    const std::string_view dtype = argv[3];
    const std::int64_t n = std::atoll(argv[2]);
    const double seconds = std::atof(argv[4]);
    if (n > 0 && seconds > 0 && (dtype == "f32" || dtype == "bf16")) {
      tessera::print_turn(n, dtype == "f32" ? tessera::DType::kF32 : tessera::DType::kBF16,
                          seconds);
      return 0;
    }
  }
  if (argc > 1 && !smoke) {
    std::fprintf(stderr,
                 "unknown arguments from \"%s\"; there are: --smoke, --turn N f32|bf16 SECONDS\n",
                 argv[1]);
    return 2;
  }
  tessera::measure(smoke);
  return 0;
}
