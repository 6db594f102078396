// The meaning of cuBLAS statuses.
#include "tessera/tensor/kernels/cuda/cublas/cublas_meaning.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace tessera {
namespace {

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
