#include "tessera/tensor/kernels/cuda/cublas/cublas_meaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tessera::cuda {
namespace {

constexpr const char* kGeneral =
    "look the name up in the documentation of cuBLAS; if the program is right, report it";
constexpr const char* kOurs = "that is a fault of Tessera: report it with this text";
constexpr const char* kEnd =
    "this product or an earlier operation on the GPU failed: CUDA_LAUNCH_BLOCKING=1 makes it fail "
    "where it is issued; this process must end";
constexpr const char* kMachine = "look at nvidia-smi and the system's log; restart the GPU";

struct Row {
  int code;
  CublasMeaning meaning;
};

constexpr Row kRows[] = {
    {1,
     {.advice = "the library could not start on this GPU: free some of its memory, or look at "
                "nvidia-smi"}},  // CUBLAS_STATUS_NOT_INITIALIZED
    {3,
     {.out_of_memory = true,
      .advice = "use smaller batches or more ranks"}},  // CUBLAS_STATUS_ALLOC_FAILED
    {7, {.advice = kOurs}},                             // CUBLAS_STATUS_INVALID_VALUE
    {8,
     {.advice = "this GPU is none that the library computes this for: sm_80 or newer, or another "
                "dtype"}},       // CUBLAS_STATUS_ARCH_MISMATCH
    {11, {.advice = kMachine}},  // CUBLAS_STATUS_MAPPING_ERROR
    {13, {.advice = kEnd}},      // CUBLAS_STATUS_EXECUTION_FAILED
    {14, {.advice = kEnd}},      // CUBLAS_STATUS_INTERNAL_ERROR
    {15,
     {.advice = "install a newer cuBLAS, or use another dtype"}},  // CUBLAS_STATUS_NOT_SUPPORTED
    {16, {.advice = "install cuBLAS with its licence"}},           // CUBLAS_STATUS_LICENSE_ERROR
};

}  // namespace

CublasMeaning cublas_meaning(int code) {
  const Row* found = std::find_if(std::begin(kRows), std::end(kRows),
                                  [code](const Row& row) { return row.code == code; });
  return found == std::end(kRows) ? CublasMeaning{.advice = kGeneral} : found->meaning;
}

std::string cublas_message(int code, std::string_view name, std::string_view text,
                           std::string_view what) {
  return fmt::format("cuBLAS reports {} (code {}) in {}: {}; {}", name, code, what, text,
                     cublas_meaning(code).advice);
}

}  // namespace tessera::cuda
