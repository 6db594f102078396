// The meaning of CUDA runtime errors, unusable GPUs, sizes of pinned pieces, and the message of a
// process that lacks the GPU.

#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "tessera/tensor/cuda/error_meaning.h"
#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/cuda/pinned_sizes.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_meaning.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_meaning.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

constexpr Device kMissing{DeviceType::kCuda, 63};

TEST_CASE("cuda errors: exactly one means that memory has run out") {
  std::set<int> out_of_memory;
  for (int code = 0; code <= 1000; ++code) {
    if (cuda::error_meaning(code).out_of_memory) out_of_memory.insert(code);
  }
  CHECK(out_of_memory == std::set<int>{2});
}

TEST_CASE("cuda errors: those after which the GPU takes no more work") {
  std::set<int> final;
  for (int code = 0; code <= 1000; ++code) {
    if (cuda::error_meaning(code).is_final) final.insert(code);
  }
  CHECK(final == std::set<int>{4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719,
                               810, 999});
}

TEST_CASE("cuda errors: every code has advice") {
  for (int code = 1; code <= 1000; ++code) {
    CHECK_FALSE(std::string(cuda::error_meaning(code).advice).empty());
  }
}

TEST_CASE("cuda errors: their text") {
  CHECK(
      cuda::error_message(209, "cudaErrorNoKernelImageForDevice", "no kernel image", "a launch") ==
      "CUDA reports cudaErrorNoKernelImageForDevice (code 209) in a launch: no kernel image; this "
      "GPU is none that Tessera is compiled for: sm_80 or newer");
  CHECK(cuda::error_message(5, "cudaErrorProfilerDisabled", "disabled", "x") ==
        "CUDA reports cudaErrorProfilerDisabled (code 5) in x: disabled; look the name up in the "
        "documentation of the CUDA runtime; if the program is right, report it");
}

TEST_CASE("cuda devices: what is refused") {
  CHECK(cuda::device_problem({"A100", 8, 0, true}).empty());
  CHECK(cuda::device_problem({"H100", 9, 0, true}).empty());
  CHECK(cuda::device_problem({"T4", 7, 5, true}) ==
        "T4 has compute capability 7.5, and Tessera needs 8.0 or more; use another GPU or the cpu");
  CHECK(cuda::device_problem({"A100", 8, 0, false}) ==
        "A100 has no stream-ordered memory pools; use another GPU or a newer driver");
}

TEST_CASE("cuda machines: why there is no computing on GPUs, in one line each") {
  cuda::MachineFacts facts;
  CHECK(cuda::machine_problem(facts) ==
        "this build has no CUDA; build where the CUDA toolkit is installed, or use the cpu");
  facts = {.has_cuda = true, .runtime_version = 13000};
  CHECK(cuda::machine_problem(facts) ==
        "no NVIDIA driver was found, and CUDA 13.0 needs one; install it, or use the cpu");
  facts.driver_version = 12080;
  CHECK(cuda::machine_problem(facts) ==
        "the NVIDIA driver is of CUDA 12.8, and this program needs one of CUDA 13.0 or newer; "
        "update the driver, or use the cpu");
  facts.driver_version = 13000;
  facts.count_error = "no CUDA-capable device is detected";
  CHECK(cuda::machine_problem(facts) ==
        "the NVIDIA driver offers no GPU (no CUDA-capable device is detected); look at nvidia-smi "
        "and at CUDA_VISIBLE_DEVICES, or use the cpu");
  facts.count_error.clear();
  facts.devices = {{"T4", 7, 5, true}, {"V100", 7, 0, true}};
  CHECK(cuda::machine_problem(facts) ==
        "cuda:0: T4 has compute capability 7.5, and Tessera needs 8.0 or more; use another GPU or "
        "the cpu");
  facts.devices = {{"H100", 9, 0, true}};
  CHECK(cuda::machine_problem(facts).empty());
  facts.driver_version = 14020;  // a newer driver runs older programs
  CHECK(cuda::machine_problem(facts).empty());
  facts = {.has_cuda = true,
           .driver_version = 13000,
           .runtime_version = 13010,
           .devices = {{"A100", 8, 0, true}}};
  CHECK(cuda::machine_problem(facts).empty());
}

TEST_CASE("cuda machines: a GPU that cannot be used leaves the others usable") {
  const cuda::MachineFacts facts{.has_cuda = true,
                                 .driver_version = 13000,
                                 .runtime_version = 13000,
                                 .devices = {{"T4", 7, 5, true}, {"H100", 9, 0, true}}};
  CHECK(cuda::machine_problem(facts).empty());
  CHECK(cuda::gpu_problem(facts, 1).empty());
  CHECK(cuda::gpu_problem(facts, 0) ==
        "cuda:0: T4 has compute capability 7.5, and Tessera needs 8.0 or more; use another GPU or "
        "the cpu");
  CHECK(cuda::gpu_problem(facts, 2) ==
        "cuda:2 is none of this process's 2 GPUs; name one that exists");
  CHECK(cuda::gpu_problem({}, 0) == cuda::machine_problem({}));
}

TEST_CASE("cuda machines: this one has GPUs or says why not") {
  CHECK(cuda_problem().empty() == (cuda_device_count() > 0));
  CHECK_FALSE(cuda_problem(-1).empty());
}

TEST_CASE("pinned pieces: the smallest class that holds the bytes") {
  for (std::size_t bytes : {std::size_t{1}, std::size_t{4095}, std::size_t{4096}, std::size_t{4097},
                            std::size_t{100000}, cuda::kLargestPinned}) {
    const int found = cuda::pinned_class(bytes);
    CHECK(cuda::pinned_class_bytes(found) >= bytes);
    CHECK((found == 0 || cuda::pinned_class_bytes(found - 1) < bytes));
  }
  CHECK(cuda::pinned_class(cuda::kLargestPinned) == cuda::kPinnedClasses - 1);
}

TEST_CASE("pinned tensors: at most an eighth more than asked for, at least a page") {
  CHECK(cuda::pinned_block_bytes(1) == 4096);
  CHECK(cuda::pinned_block_bytes(4096) == 4096);
  for (std::size_t bytes :
       {std::size_t{4097}, std::size_t{8191}, std::size_t{8193}, std::size_t{100000},
        std::size_t{1} << 20, (std::size_t{1} << 33) + 7}) {
    const std::size_t taken = cuda::pinned_block_bytes(bytes);
    CHECK(taken >= bytes);
    CHECK(taken <= bytes + bytes / 8 + 512);
    CHECK(cuda::pinned_block_bytes(taken) == taken);
  }
}

TEST_CASE("a GPU that is missing: memory, tensors, transfers") {
  CHECK(thrown<DeviceError>([] {
          cuda_memory(kMissing);
        }).starts_with("[cuda_memory] cuda:63 is no GPU of this process"));
  CHECK(thrown<DeviceError>([] {
          empty_cuda_cache(kMissing);
        }).starts_with("[empty_cuda_cache] cuda:63 is no GPU of this process"));
  const std::string text = "[stream.create] cuda:63 cannot run \"default\"";
  CHECK(thrown<DeviceError>([] { Tensor::empty({2}, {.device = kMissing}); }).starts_with(text));
  CHECK(thrown<DeviceError>([] { to_device(Tensor::scalar(1), kMissing); }).starts_with(text));
}

}  // namespace

namespace {

// The meaning of cuBLAS statuses.
TEST_CASE("cublas statuses: exactly one means that memory has run out") {
  std::set<int> out_of_memory;
  for (int code = 0; code <= 100; ++code) {
    if (cuda::cublas_meaning(code).out_of_memory) out_of_memory.insert(code);
  }
  CHECK(out_of_memory == std::set<int>{3});
}

TEST_CASE("cublas statuses: every one that there is has advice of its own") {
  const std::string general = cuda::cublas_meaning(2).advice;
  for (int code = 1; code <= 100; ++code) {
    const bool exists = std::set<int>{1, 3, 7, 8, 11, 13, 14, 15, 16}.contains(code);
    INFO(code);
    CHECK((cuda::cublas_meaning(code).advice == general) == !exists);
  }
}

TEST_CASE("cublas statuses: their text") {
  CHECK(cuda::cublas_message(3, "CUBLAS_STATUS_ALLOC_FAILED", "no memory", "cublasLtMatmul") ==
        "cuBLAS reports CUBLAS_STATUS_ALLOC_FAILED (code 3) in cublasLtMatmul: no memory; use "
        "smaller batches or more ranks");
  CHECK(cuda::cublas_message(99, "NAME", "text", "cublasLtMatmul") ==
        "cuBLAS reports NAME (code 99) in cublasLtMatmul: text; look the name up in the "
        "documentation of cuBLAS; if the program is right, report it");
}

}  // namespace
}  // namespace tessera

namespace tessera::cuda {

// The meaning of cuDNN statuses.
TEST_CASE("statuses of cuDNN have the meaning of their row, else of their category") {
  CHECK(cudnn_meaning(0).kind == CudnnKind::kSuccess);
  CHECK(cudnn_meaning(4003).kind == CudnnKind::kOutOfMemory);
  CHECK(cudnn_meaning(4004).kind == CudnnKind::kOutOfMemory);
  for (const int refused : {3000, 3001, 3007, 3009, 3999})
    CHECK(cudnn_meaning(refused).kind == CudnnKind::kRefusal);
  for (const int failure : {1, 1001, 1002, 1008, 2000, 2008, 4000, 4001, 5000, 5003, 9999})
    CHECK(cudnn_meaning(failure).kind == CudnnKind::kFailure);
  CHECK(std::string(cudnn_meaning(2000).advice) == cudnn_meaning(2012).advice);
  CHECK(std::string(cudnn_meaning(5000).advice) != cudnn_meaning(2000).advice);
  CHECK(!std::string(cudnn_meaning(-7).advice).empty());
}

TEST_CASE("the text of a status of cuDNN says what failed and what to do") {
  CHECK(cudnn_message(2008, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH", "dims differ",
                      "cudnnBackendFinalize") ==
        std::string("cuDNN reports CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH (code 2008) in "
                    "cudnnBackendFinalize: dims differ; ") +
            cudnn_meaning(2008).advice);
  CHECK(cudnn_message(5000, "X", "", "Y").find("no more is said") != std::string::npos);
}

}  // namespace tessera::cuda
