// Matrix products on a GPU compared with the best algorithm of cuBLASLt, out of those that its
// heuristic proposes: up to 512 for each product, as many as can be tried in one second:
//
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_matmul
//
// Shapes are those of the linear layers of transformers, forward (NT: x W^T) and backward (NN: dy
// W, TN: dy^T x). Prints one line of JSON for each; `ratio` is the best algorithm's time divided by
// ours, 1 if ours is the best, and should be at least `goal`; `algorithms` of those `proposed` were
// tried. Without a GPU it says so and ends.
//
// It should take less than 200 seconds on an H100. There are 120 products; each takes at most a
// second for the search over algorithms (cublas_search.h), then 95 rounds of max(3, 4 T) ms: 0.3 s,
// so 160 s together. 12 in bf16 with 16384 tokens have 20e12 operations (33 ms at 600e12 a second)
// and 12 in f32 of width 4096 have 1.2e12 (25 ms at 50e12): 4 * 95 * 58 ms are 22 s. f32 of width
// 4096 with 4096 tokens would add 100 ms each, 38 s together, for sizes that models do not use.
// Estimated, not measured.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_search.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tools/bench/bench_gpu_support.h"

namespace tessera {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

struct Product {
  std::int64_t m, n, k;
  const char* layout;  // of a and b; T: by columns
  DType dtype;
};

// A layer [out, in] on so many tokens: its result and both gradients.
void add_layer(std::vector<Product>& all, std::int64_t tokens, std::int64_t in, std::int64_t out,
               DType dtype) {
  all.push_back({tokens, out, in, "NT", dtype});
  all.push_back({tokens, in, out, "NN", dtype});
  all.push_back({out, in, tokens, "TN", dtype});
}

std::vector<Product> products() {
  std::vector<Product> all;
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (std::int64_t width : {768, 4096}) {
      for (std::int64_t tokens : {1024, 4096, 16384}) {
        if (dtype == DType::kF32 && width * tokens > 768 * 16384) continue;  // takes too long
        add_layer(all, tokens, width, width, dtype);
        add_layer(all, tokens, width, 3 * width, dtype);
        add_layer(all, tokens, width, 4 * width, dtype);
        add_layer(all, tokens, 4 * width, width, dtype);
      }
    }
  }
  return all;
}

ConstView operand(const Tensor& x) {
  ConstView view = read(x);
  settle_strides(view.shape[0], view.shape[1], view.strides[0], view.strides[1]);
  return view;
}

void measure(const Product& x) {
  const bool ta = x.layout[0] == 'T', tb = x.layout[1] == 'T';
  const TensorOptions options = {.dtype = x.dtype, .device = kGpu};
  Tensor a = random_tensor(ta ? Shape{x.k, x.m} : Shape{x.m, x.k}, options, "a");
  Tensor b = random_tensor(tb ? Shape{x.n, x.k} : Shape{x.k, x.n}, options, "b");
  if (ta) a = a.transpose(0, 1);
  if (tb) b = b.transpose(0, 1);
  const Tensor c = zeros({x.m, x.n}, {.dtype = x.dtype, .device = kGpu});
  const DeviceStream& stream = current_stream(kGpu);
  stream.synchronize();
  const MemoryBlock workspace =
      MemoryBlock::take(kWorkspaceBytes, stream, MemoryCategory::kWorkspace);
  const MatmulKernel::Args args = {
      .a = operand(a), .b = operand(b), .bias = {}, .before = {}, .c = write(c)};
  const cuda::DeviceGuard guard(kGpu.index);
  const cuda::ProductTimes times = cuda::compare_with_best(
      stream.cuda_handle(), args, {.data = workspace.data(), .bytes = workspace.bytes()});
  const double operations =
      2.0 * static_cast<double>(x.m) * static_cast<double>(x.n) * static_cast<double>(x.k);
  std::printf(
      "{\"bench\": \"matmul\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"layout\": \"%s\", "
      "\"dtype\": \"%s\", \"ours_us\": "
      "%.2f, \"best_us\": %.2f, \"algorithms\": %d, \"proposed\": %d, \"tflops\": %.1f, \"ratio\": "
      "%.3f, \"goal\": "
      "0.97}\n",
      static_cast<long long>(x.m), static_cast<long long>(x.n), static_cast<long long>(x.k),
      x.layout, dtype_name(x.dtype), times.ours, times.best, times.algorithms, times.proposed,
      operations / times.ours * 1e-6, times.best / times.ours);
  std::fflush(stdout);
}

}  // namespace
}  // namespace tessera

int main() {
  if (tessera::cuda_device_count() == 0) {
    std::printf("skipped: no GPU\n");
    return 0;
  }
  for (const tessera::Product& product : tessera::products()) tessera::measure(product);
}
