// Statuses of cuBLAS as exceptions, with the library's names and texts. Needs no GPU.
#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_lt.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_meaning.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

TEST_CASE("every status of cuBLAS becomes an exception with its name, text and advice") {
  for (const auto& [code, name] : {std::pair<int, std::string>{1, "NOT_INITIALIZED"},
                                   {3, "ALLOC_FAILED"},
                                   {7, "INVALID_VALUE"},
                                   {8, "ARCH_MISMATCH"},
                                   {11, "MAPPING_ERROR"},
                                   {13, "EXECUTION_FAILED"},
                                   {14, "INTERNAL_ERROR"},
                                   {15, "NOT_SUPPORTED"},
                                   {16, "LICENSE_ERROR"}}) {
    const auto throws = [code = code] { cuda::check_cublas(code, "here", "cublasLtMatmul"); };
    const std::string text = thrown<Error>(throws), other = "another type of exception: ";
    const std::string start = "[here] cuBLAS reports CUBLAS_STATUS_" + name + " (code " +
                              std::to_string(code) + ") in cublasLtMatmul: ";
    INFO(text);
    CHECK(text.starts_with(start));
    CHECK(text.ends_with(std::string("; ") + cuda::cublas_meaning(code).advice));
    CHECK(text.size() > start.size() + 2 + std::string(cuda::cublas_meaning(code).advice).size());
    CHECK(thrown<OutOfMemory>(throws) == (code == 3 ? text : other + text));
    CHECK(thrown<DeviceError>(throws) == (code == 3 ? other + text : text));
  }
  cuda::check_cublas(0, "here", "cublasLtMatmul");
}

}  // namespace
}  // namespace tessera
