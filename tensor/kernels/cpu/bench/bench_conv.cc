// The speed of convolution, relative to a matrix product with as many multiplications:
//
//     tools/bazel run //tensor/kernels/cpu:bench_conv
//
// The product is the weight times all im2col columns, without the time to make them; and the speed in bf16 relative to
// f32. Both sides alternate, and the best of many runs counts, so that a busy machine affects both alike.
#include <chrono>
#include <cstdio>
#include <memory>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

constexpr int kRuns = 15;

template <class Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Problem {
  std::int64_t images, channels, size, out, kernel;
  Conv2dOptions options;
};

void compare(const Problem& p) {
  const Tensor x = full({p.images, p.channels, p.size, p.size}, 0.5),
               w = full({p.out, p.channels / p.options.groups, p.kernel, p.kernel}, 0.5);
  const Tensor y = conv2d(x, w, {}, p.options);
  const std::int64_t depth = w.numel() / p.out, positions = y.numel() / p.out;
  const Tensor a = full({p.out, depth}, 0.5), b = full({depth, positions}, 0.5);
  double product = 1e9, forward = 1e9, input = 1e9, weight = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    product = std::min(product, seconds([&] { matmul(a, b); }));
    forward = std::min(forward, seconds([&] { conv2d(x, w, {}, p.options); }));
    input = std::min(input, seconds([&] { conv_backward_input(y, w, x.shape(), p.options); }));
    weight = std::min(weight, seconds([&] { conv_backward_weight(y, x, w.shape(), p.options); }));
  }
  const double flops = 2.0 * static_cast<double>(y.numel()) * static_cast<double>(depth);
  std::printf(
      "  %3lld x [%3lld, %3lld, %3lld] -> %3lld, %lld x %lld, stride %lld, groups %2lld: product "
      "%6.1f GFLOP/s, forward %6.1f (%.2f), dx %6.1f (%.2f), dweight %6.1f (%.2f)\n",
      static_cast<long long>(p.images), static_cast<long long>(p.channels),
      static_cast<long long>(p.size), static_cast<long long>(p.size), static_cast<long long>(p.out),
      static_cast<long long>(p.kernel), static_cast<long long>(p.kernel),
      static_cast<long long>(p.options.stride.height), static_cast<long long>(p.options.groups),
      flops / product * 1e-9, flops / forward * 1e-9, product / forward, flops / input * 1e-9,
      product / input, flops / weight * 1e-9, product / weight);
}

struct Seconds {
  double forward = 1e9, input = 1e9, weight = 1e9;
};

void compare_dtypes(const Problem& p) {
  Seconds f32, bf16;
  for (int run = 0; run < kRuns; ++run) {
    for (Seconds* best : {&f32, &bf16}) {
      const DType dtype = best == &f32 ? DType::kF32 : DType::kBF16;
      const Tensor x = full({p.images, p.channels, p.size, p.size}, 0.5, {.dtype = dtype}),
                   w = full({p.out, p.channels / p.options.groups, p.kernel, p.kernel}, 0.5,
                            {.dtype = dtype});
      Tensor y;
      best->forward = std::min(best->forward, seconds([&] { y = conv2d(x, w, {}, p.options); }));
      best->input =
          std::min(best->input, seconds([&] { conv_backward_input(y, w, x.shape(), p.options); }));
      best->weight = std::min(best->weight,
                              seconds([&] { conv_backward_weight(y, x, w.shape(), p.options); }));
    }
  }
  std::printf(
      "  %3lld x [%3lld, %3lld, %3lld] -> %3lld: bf16 forward %.2f, dx %.2f, dweight %.2f\n",
      static_cast<long long>(p.images), static_cast<long long>(p.channels),
      static_cast<long long>(p.size), static_cast<long long>(p.size), static_cast<long long>(p.out),
      f32.forward / bf16.forward, f32.input / bf16.input, f32.weight / bf16.weight);
}

template <class Compare>
void compare_all(const Compare& compare) {
  compare({16, 1, 28, 32, 3, {.padding = 1}});
  compare({16, 32, 28, 64, 3, {.padding = 1}});
  compare({8, 64, 56, 64, 3, {.padding = 1}});
  compare({8, 64, 56, 128, 1, {}});
  compare({8, 128, 28, 128, 3, {.padding = 1}});
  compare({8, 128, 28, 256, 3, {.stride = 2, .padding = 1}});
  compare({16, 512, 7, 512, 3, {.padding = 1}});
  compare({4, 3, 224, 64, 7, {.stride = 2, .padding = 3}});
  compare({8, 64, 28, 64, 3, {.padding = 1, .groups = 64}});
}

}  // namespace
}  // namespace tessera

int main() {
  for (int threads : {1, 2}) {
    std::printf("---- %d thread%s\n", threads, threads == 1 ? "" : "s");
    tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, threads));
    tessera::compare_all(tessera::compare);
    tessera::compare_all(tessera::compare_dtypes);
  }
}
