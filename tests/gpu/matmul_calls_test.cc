// Calls of cuBLASLt: unsupported products, equal bits, several threads, graphs.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/half.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_lt.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tests/gpu/device_buffer.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::cuda_check;
using testing::DeviceBuffer;
using testing::thrown;

}  // namespace

TEST_CASE("products: what the library has no algorithm for is an error with its sizes") {
  const DeviceBuffer<double> memory(std::vector<double>(4096));

  cuda::LtProduct product;
  product.first = {.dtype = DType::kBF16, .rows = 16, .columns = 8, .leading = 16};
  product.second = {.dtype = DType::kBF16, .rows = 8, .columns = 4, .leading = 8};
  // Not in the library's table for bf16 operands.
  product.result = {.dtype = DType::kF64, .rows = 16, .columns = 4, .leading = 16};
  const cuda::LtOperands operands = {
      .first = memory.data(), .second = memory.data() + 512, .result = memory.data() + 1024};
  CHECK(thrown<DeviceError>([&] { cuda::run_product(nullptr, product, operands, {}); }) ==
        "[matmul] cuBLAS has no algorithm for 1 products of 4 x 8 by 8 x 16 from bf16 to f64 on "
        "this GPU; install a newer cuBLAS, or make the operands contiguous");
}

TEMPLATE_TEST_CASE("products: the same bits each time, also of a long inner dim", "", float,
                   BFloat16) {
  const std::int64_t m = 16, k = 16384, n = 24;
  const auto buffer = [](std::int64_t count) {
    std::vector<TestType> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(TestType(static_cast<float>((i * 7919) % 1009) / 1009.0f - 0.5f));
    return values;
  };
  const DeviceBuffer<TestType> a(buffer(m * k)), b(buffer(k * n));
  const DeviceBuffer<float> c(std::vector<float>(static_cast<std::size_t>(m * n)));
  const auto matrix = []<class AnyView>(AnyView view, void* data, DType dtype, const Shape& shape) {
    view.data = data;
    view.dtype = dtype;
    view.shape = shape;
    view.strides = contiguous_strides(shape);
    return view;
  };
  const MatmulKernel::Args args = {.a = matrix(ConstView{}, a.data(), dtype_of<TestType>, {m, k}),
                                   .b = matrix(ConstView{}, b.data(), dtype_of<TestType>, {k, n}),
                                   .bias = {},
                                   .before = {},
                                   .c = matrix(View{}, c.data(), DType::kF32, {m, n})};
  const std::size_t bytes = MatmulKernel::cuda_workspace(args);
  const DeviceBuffer<float> scratch(std::vector<float>(bytes / sizeof(float)));
  std::vector<float> first;
  for (int run = 0; run < 3; ++run) {
    MatmulKernel::cuda(nullptr, args, {.data = scratch.data(), .bytes = bytes});
    const std::vector<float> got = c.values();
    if (run == 0) first = got;
    CHECK(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("products: several threads at once, whose shapes are new to the library") {
  constexpr int kThreads = 4;
  constexpr std::int64_t kSizes = 24;
  const std::vector<float> ones(kSizes * kSizes, 1), none(kSizes * kSizes, 0);
  const DeviceBuffer<float> a(ones), b(ones);
  std::vector<std::unique_ptr<DeviceBuffer<float>>> results;
  for (std::int64_t i = 0; i < kThreads * kSizes; ++i)
    results.push_back(std::make_unique<DeviceBuffer<float>>(none));
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Without workspace for the library, so that threads share nothing.
      for (std::int64_t k = 1; k <= kSizes; ++k) {
        cuda::LtProduct product;
        product.first = {.dtype = DType::kF32, .rows = 5, .columns = k, .leading = 5};
        product.second = {.dtype = DType::kF32, .rows = k, .columns = 3, .leading = k};
        product.result = {.dtype = DType::kF32, .rows = 5, .columns = 3, .leading = 5};
        const cuda::LtOperands operands = {
            .first = a.data(),
            .second = b.data(),
            .result = results[static_cast<std::size_t>(t * kSizes + k - 1)]->data()};
        try {
          cuda::run_product(nullptr, product, operands, {});
        } catch (const Error&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  for (std::int64_t i = 0; i < kThreads * kSizes; ++i) {
    const std::vector<float> got = results[static_cast<std::size_t>(i)]->values();
    CHECK(std::all_of(got.begin(), got.begin() + 15,
                      [&](float x) { return x == static_cast<float>(i % kSizes + 1); }));
    CHECK(got[15] == 0);
  }
}

TEST_CASE("products: captured in a graph, they compute from what is there at each launch") {
  const std::vector<float> ones(64, 1);
  const DeviceBuffer<float> a(ones), b(ones), bias(ones), c(ones);
  MatmulKernel::Args args;
  // Relu is a kernel after the library's call; a bias with one number for all columns is converted
  // before.
  args.a = {.data = a.data(), .dtype = DType::kF32, .shape = {4, 8}, .strides = {8, 1}};
  args.b = {.data = b.data(), .dtype = DType::kF32, .shape = {8, 3}, .strides = {3, 1}};
  args.bias = {.data = bias.data(), .dtype = DType::kF32, .shape = {3}, .strides = {0}};
  args.c = {.data = c.data(), .dtype = DType::kF32, .shape = {4, 3}, .strides = {3, 1}};
  args.activation = ActivationKind::kRelu;
  const std::size_t bytes = MatmulKernel::cuda_workspace(args);
  const DeviceBuffer<float> scratch(std::vector<float>(bytes / sizeof(float)));
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto issue = [&] {
    MatmulKernel::cuda(stream, args, {.data = scratch.data(), .bytes = bytes});
  };
  issue();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launchable = nullptr;
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  issue();
  cuda_check(cudaStreamEndCapture(stream, &graph));
  cuda_check(cudaGraphInstantiate(&launchable, graph, 0));
  for (float number : {2.0f, 3.0f}) {
    const std::vector<float> numbers(64, number);
    cuda_check(cudaMemcpy(a.data(), numbers.data(), 32 * sizeof(float), cudaMemcpyHostToDevice));
    cuda_check(cudaMemcpy(bias.data(), &number, sizeof(float), cudaMemcpyHostToDevice));
    cuda_check(cudaGraphLaunch(launchable, stream));
    cuda_check(cudaStreamSynchronize(stream));
    const std::vector<float> got = c.values();
    CHECK(std::all_of(got.begin(), got.begin() + 12, [&](float x) { return x == 9 * number; }));
    CHECK(got[12] == 1);
  }
  cuda_check(cudaGraphExecDestroy(launchable));
  cuda_check(cudaGraphDestroy(graph));
  cuda_check(cudaStreamDestroy(stream));
}

}  // namespace tessera
