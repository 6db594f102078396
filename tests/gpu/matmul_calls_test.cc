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
#include "tessera/tensor/kernels/cuda/cublas/cublas_choice.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_descriptors.h"
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

TEST_CASE("products: of algorithms with the bits of the first, the fastest is chosen") {
  using Measured = cuda::MeasuredAlgorithm;
  const auto choice = [](const std::vector<Measured>& all) { return cuda::fastest_equal(all); };
  const Measured first{.us = 10, .splits = 1, .checksum = 7};
  CHECK(choice({first}) == 0);
  CHECK(choice({first, {.us = 8.9, .splits = 1, .checksum = 7}}) == 1);
  CHECK(choice({first, {.us = 9.1, .splits = 1, .checksum = 7}}) == 0);  // as fast
  CHECK(choice({first, {.us = 1, .splits = 1, .checksum = 8}}) == 0);
  CHECK(choice({first, {.us = 1, .splits = 2, .checksum = 7}}) == 0);
  CHECK(choice({first,
                {.us = 8, .splits = 1, .checksum = 7},
                {.us = 7, .splits = 1, .checksum = 7},
                {.us = 9, .splits = 1, .checksum = 7}}) == 2);
  cuda::LtProduct product;
  product.first = {.rows = 512, .columns = 512};
  product.second = {.rows = 512, .columns = 512};
  product.result = {.rows = 512, .columns = 512};
  CHECK_FALSE(cuda::worth_measuring(product));
  product.batch = 64;
  CHECK(cuda::worth_measuring(product));
}

TEST_CASE(
    "products: measured algorithms leave the product, and the choice has the first one's bits") {
  constexpr std::int64_t kRows = 64, kInner = 640, kColumns = 48;
  const auto random = [](std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>((i * 7919) % 1009) / 1009.0f - 0.5f);
    return values;
  };
  const DeviceBuffer<float> a(random(kRows * kInner)), b(random(kInner * kColumns)),
      c(std::vector<float>(kRows * kColumns, 3.0f)), room(std::vector<float>(1 << 18));
  cuda::LtProduct product;
  product.first = {.rows = kRows, .columns = kInner, .leading = kRows};
  product.second = {.rows = kInner, .columns = kColumns, .leading = kInner};
  product.result = {.rows = kRows, .columns = kColumns, .leading = kRows};
  const cuda::LtOperands operands = {
      .first = a.data(), .second = b.data(), .result = c.data(), .beta = 0};
  const Workspace workspace{.data = room.data(), .bytes = sizeof(float) << 18};
  cuda::LtOperation operation(product, operands);
  cublasLtHandle_t handle = cuda::current_handle();
  const std::vector<cuda::LtAlgorithm> all =
      cuda::propose(handle, cuda::key_of(product, operands, workspace), operation, {.most = 8});
  REQUIRE(!all.empty());
  const auto result_of = [&](std::size_t i) {
    cuda::multiply(handle, nullptr, all[i], operation, operands, workspace);
    return c.values();
  };
  const std::vector<float> first = result_of(0);
  const std::size_t chosen =
      cuda::measure_algorithms(handle, nullptr, all, product, operation, operands, workspace);
  REQUIRE(chosen < all.size());
  CHECK(std::memcmp(c.values().data(), first.data(), first.size() * sizeof(float)) == 0);
  const std::vector<float> own = result_of(chosen);
  CHECK(std::memcmp(own.data(), first.data(), first.size() * sizeof(float)) == 0);
  // Without room for the checksum nothing runs.
  CHECK(cuda::measure_algorithms(handle, nullptr, all, product, operation, operands, {}) == 0);
}

TEST_CASE("products: large ones are measured once, also if the first call adds or is captured") {
  constexpr std::int64_t n = 1280;  // 4.2e9 operations
  const std::vector<BFloat16> halves(n * n, BFloat16(0.5f));
  const DeviceBuffer<BFloat16> a(halves), b(halves);
  const DeviceBuffer<float> c(std::vector<float>(n * n, 1.0f));
  MatmulKernel::Args args;
  args.a = {.data = a.data(), .dtype = DType::kBF16, .shape = {n, n}, .strides = {n, 1}};
  args.b = {.data = b.data(), .dtype = DType::kBF16, .shape = {n, n}, .strides = {n, 1}};
  args.c = {.data = c.data(), .dtype = DType::kF32, .shape = {n, n}, .strides = {n, 1}};
  const std::size_t bytes = MatmulKernel::cuda_workspace(args);
  const DeviceBuffer<float> scratch(std::vector<float>(bytes / sizeof(float)));
  const auto run = [&](double beta) {
    args.beta = beta;
    MatmulKernel::cuda(nullptr, args, {.data = scratch.data(), .bytes = bytes});
    return c.values()[5];
  };
  CHECK(run(1) == 0.25f * n + 1);
  CHECK(run(0) == 0.25f * n);
  CHECK(run(1) == 0.5f * n);
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
