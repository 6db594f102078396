// When cuBLASLt is loaded. A separate program, so that no other test has loaded the library before.
// Needs no GPU.
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tessera/tensor/kernels/cuda/cublas/cublas_library.h"

namespace tessera {
namespace {

// The mapped file of the library in this process; empty if it is not loaded.
std::string mapped_library() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto name = line.find("/libcublas");
    if (name != std::string::npos) return line.substr(name + 1);
  }
  return "";
}

TEST_CASE("cuBLASLt is loaded by the first that asks for it, and not before main") {
  REQUIRE(mapped_library() == "");
  std::array<const cuda::CublasLt*, 4> tables{};
  std::vector<std::thread> threads;
  for (const cuda::CublasLt*& table : tables)
    threads.emplace_back([&table] { table = &cuda::cublaslt(); });
  for (std::thread& thread : threads) thread.join();
  for (const cuda::CublasLt* table : tables) CHECK(table == &cuda::cublaslt());
  // The major version of the header that this is compiled with.
  CHECK(mapped_library().starts_with("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)));

#define TESSERA_CHECK_POINTER(name) CHECK(tables[0]->name != nullptr);
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CHECK_POINTER)
  CHECK(std::string(tables[0]->cublasLtGetStatusName(CUBLAS_STATUS_ALLOC_FAILED)) ==
        "CUBLAS_STATUS_ALLOC_FAILED");
}

}  // namespace
}  // namespace tessera
