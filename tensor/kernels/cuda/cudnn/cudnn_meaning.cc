#include "tessera/tensor/kernels/cuda/cudnn/cudnn_meaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tessera::cuda {
namespace {

constexpr const char* kGeneral = "look the name up in cuDNN's documentation";
constexpr const char* kOurs = "that is a fault of Tessera: report it with this text";
constexpr const char* kInstall =
    "install one version of all libraries of cuDNN, the one that Tessera was built with or newer, "
    "and see that LD_LIBRARY_PATH shows no other";
constexpr const char* kDriver = "install a driver that supports this version of cuDNN";
constexpr const char* kRefused = "cuDNN has no implementation for this; other kernels are taken";
constexpr const char* kMemory = "use smaller batches or more ranks";
constexpr const char* kEarlier =
    "an earlier operation on the GPU may be the cause: CUDA_LAUNCH_BLOCKING=1 makes it fail where "
    "it is issued";
constexpr const char* kStart =
    "cuDNN needs a GPU and a driver that work: look at nvidia-smi; or use the cpu";

struct Row {
  int code;
  CudnnMeaning meaning;
};

// In ascending order; codes not listed here get the meaning of their category below.
constexpr Row kRows[] = {
    {0, {.kind = CudnnKind::kSuccess}},
    {1001, {.advice = kStart}},                                 // NOT_INITIALIZED
    {1002, {.advice = kInstall}},                               // SUBLIBRARY_VERSION_MISMATCH
    {1003, {.advice = kInstall}},                               // SERIALIZATION_VERSION_MISMATCH
    {1004, {.advice = kInstall}},                               // DEPRECATED
    {1008, {.advice = kInstall}},                               // SUBLIBRARY_LOADING_FAILED
    {3005, {.kind = CudnnKind::kRefusal, .advice = kDriver}},   // ..INCOMPATIBLE_CUDA_DRIVER
    {3006, {.kind = CudnnKind::kRefusal, .advice = kInstall}},  // ..INCOMPATIBLE_CUDART
    {3008, {.kind = CudnnKind::kRefusal, .advice = kInstall}},  // ..RUNTIME_PREREQUISITE_MISSING
    {3009, {.kind = CudnnKind::kRefusal, .advice = kInstall}},  // ..SUBLIBRARY_UNAVAILABLE
    {4003,
     {.kind = CudnnKind::kOutOfMemory,
      .advice = "this machine has no memory left"}},               // ..HOST_ALLOCATION_FAILED
    {4004, {.kind = CudnnKind::kOutOfMemory, .advice = kMemory}},  // ..DEVICE_ALLOCATION_FAILED
};

struct Category {
  int first;
  CudnnMeaning meaning;
};

constexpr Category kCategories[] = {
    {5000, {.advice = kEarlier}},                               // EXECUTION_FAILED
    {4000, {.advice = kEarlier}},                               // INTERNAL_ERROR
    {3000, {.kind = CudnnKind::kRefusal, .advice = kRefused}},  // NOT_SUPPORTED
    {2000, {.advice = kOurs}},                                  // BAD_PARAM
};

}  // namespace

CudnnMeaning cudnn_meaning(int status) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows),
                                [status](const Row& r) { return r.code == status; });
  if (row != std::end(kRows)) return row->meaning;
  const Category* category =
      std::find_if(std::begin(kCategories), std::end(kCategories),
                   [status](const Category& c) { return status / 1000 * 1000 == c.first; });
  return category == std::end(kCategories) ? CudnnMeaning{.advice = kGeneral} : category->meaning;
}

std::string cudnn_message(int status, std::string_view name, std::string_view detail,
                          std::string_view what) {
  return fmt::format("cuDNN reports {} (code {}) in {}: {}; {}", name, status, what,
                     detail.empty() ? "no more is said" : detail, cudnn_meaning(status).advice);
}

}  // namespace tessera::cuda
