// What errors of the CUDA runtime mean, which GPUs are refused, sizes of pinned pieces, and what a
// process without the GPU is told.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "tessera/tensor/cuda/error_meaning.h"
#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/cuda/pinned_sizes.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/transfer.h"
#include "tessera/tests/tensor/throws.h"

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
        "T4 has compute capability 7.5, and Tessera needs 8.0 or more; use the cpu");
  CHECK(cuda::device_problem({"A100", 8, 0, false}) ==
        "A100 has no stream-ordered memory pools; use another GPU or a newer driver");
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
}  // namespace tessera
