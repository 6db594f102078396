#include "tessera/tensor/cuda/error_meaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tessera::cuda {
namespace {

constexpr int kLeastMajor = 8;

constexpr const char* kGeneral =
    "look the name up in the documentation of the CUDA runtime; if the program is right, report it";
constexpr const char* kOurs = "that is a fault of Tessera: report it with this text";
constexpr const char* kEnd =
    "an earlier operation on the GPU is the cause: CUDA_LAUNCH_BLOCKING=1 makes it fail where it "
    "is issued; this process must end";
constexpr const char* kDriver = "install a driver that supports this CUDA toolkit, or use the cpu";
constexpr const char* kMachine = "look at nvidia-smi and the system's log; restart the GPU";
constexpr const char* kCompiledFor =
    "this GPU is none that Tessera is compiled for: sm_80 or newer";
constexpr const char* kBusy = "another process holds the GPU: end it, or choose another GPU";
constexpr const char* kMps = "look at the server of the multi-process service, or do without it";

struct Row {
  int code;
  ErrorMeaning meaning;
};

// In ascending order.
constexpr Row kRows[] = {
    {1, {.advice = kOurs}},  // cudaErrorInvalidValue
    {2,
     {.out_of_memory = true,
      .advice = "use smaller batches or more ranks"}},  // cudaErrorMemoryAllocation
    {3, {.advice = kDriver}},                           // cudaErrorInitializationError
    {4,
     {.is_final = true,
      .advice = "end the use of GPUs before main() returns"}},  // cudaErrorCudartUnloading
    {9, {.advice = kOurs}},                                     // cudaErrorInvalidConfiguration
    {17, {.advice = kOurs}},                                    // cudaErrorInvalidDevicePointer
    {21, {.advice = kOurs}},                                    // cudaErrorInvalidMemcpyDirection
    {34,
     {.advice = "the toolkit's stub of the driver was loaded: take its folder out of "
                "LD_LIBRARY_PATH"}},  // cudaErrorStubLibrary
    {35, {.advice = kDriver}},        // cudaErrorInsufficientDriver
    {36, {.advice = kDriver}},        // cudaErrorCallRequiresNewerDriver
    {46, {.advice = kBusy}},          // cudaErrorDevicesUnavailable
    {98, {.advice = kCompiledFor}},   // cudaErrorInvalidDeviceFunction
    {100, {.advice = "use the cpu, or look at CUDA_VISIBLE_DEVICES"}},   // cudaErrorNoDevice
    {101, {.advice = "use one that exists, see CUDA_VISIBLE_DEVICES"}},  // cudaErrorInvalidDevice
    {200, {.advice = kCompiledFor}},                // cudaErrorInvalidKernelImage
    {209, {.advice = kCompiledFor}},                // cudaErrorNoKernelImageForDevice
    {214, {.is_final = true, .advice = kMachine}},  // cudaErrorECCUncorrectable
    {216, {.advice = kBusy}},                       // cudaErrorDeviceAlreadyInUse
    {217,
     {.advice =
          "put these ranks on one GPU, or use another transport"}},  // ...PeerAccessUnsupported
    {220, {.is_final = true, .advice = kMachine}},                   // cudaErrorNvlinkUncorrectable
    {222, {.advice = kDriver}},                     // cudaErrorUnsupportedPtxVersion
    {226, {.is_final = true, .advice = kMachine}},  // cudaErrorContained
    {400, {.advice = kOurs}},                       // cudaErrorInvalidResourceHandle
    {700, {.is_final = true, .advice = kEnd}},      // cudaErrorIllegalAddress
    {701, {.advice = kOurs}},                       // cudaErrorLaunchOutOfResources
    {702, {.is_final = true, .advice = kEnd}},      // cudaErrorLaunchTimeout
    {709, {.is_final = true, .advice = kEnd}},      // cudaErrorContextIsDestroyed
    {710, {.is_final = true, .advice = kEnd}},      // cudaErrorAssert
    {714, {.is_final = true, .advice = kEnd}},      // cudaErrorHardwareStackError
    {715, {.is_final = true, .advice = kEnd}},      // cudaErrorIllegalInstruction
    {716, {.is_final = true, .advice = kEnd}},      // cudaErrorMisalignedAddress
    {717, {.is_final = true, .advice = kEnd}},      // cudaErrorInvalidAddressSpace
    {718, {.is_final = true, .advice = kEnd}},      // cudaErrorInvalidPc
    {719, {.is_final = true, .advice = kEnd}},      // cudaErrorLaunchFailure
    {800, {.advice = "make no CUDA calls in closures of a CUDA stream"}},  // cudaErrorNotPermitted
    {801, {.advice = "use another GPU or a newer driver"}},                // cudaErrorNotSupported
    {802, {.advice = kMachine}},                    // cudaErrorSystemNotReady
    {803, {.advice = kDriver}},                     // cudaErrorSystemDriverMismatch
    {804, {.advice = kDriver}},                     // cudaErrorCompatNotSupportedOnDevice
    {805, {.advice = kMps}},                        // cudaErrorMpsConnectionFailed
    {806, {.advice = kMps}},                        // cudaErrorMpsRpcFailure
    {807, {.advice = kMps}},                        // cudaErrorMpsServerNotReady
    {808, {.advice = kMps}},                        // cudaErrorMpsMaxClientsReached
    {809, {.advice = kMps}},                        // cudaErrorMpsMaxConnectionsReached
    {810, {.is_final = true, .advice = kMps}},      // cudaErrorMpsClientTerminated
    {999, {.is_final = true, .advice = kMachine}},  // cudaErrorUnknown
};

}  // namespace

ErrorMeaning error_meaning(int code) {
  const Row* found = std::find_if(std::begin(kRows), std::end(kRows),
                                  [code](const Row& row) { return row.code == code; });
  return found == std::end(kRows) ? ErrorMeaning{.advice = kGeneral} : found->meaning;
}

std::string error_message(int code, std::string_view name, std::string_view text,
                          std::string_view what) {
  return fmt::format("CUDA reports {} (code {}) in {}: {}; {}", name, code, what, text,
                     error_meaning(code).advice);
}

std::string device_problem(const DeviceFacts& facts) {
  if (facts.major < kLeastMajor) {
    return fmt::format(
        "{} has compute capability {}.{}, and Tessera needs {}.0 or more; use another GPU or the "
        "cpu",
        facts.name, facts.major, facts.minor, kLeastMajor);
  }
  if (!facts.has_memory_pools) {
    return fmt::format("{} has no stream-ordered memory pools; use another GPU or a newer driver",
                       facts.name);
  }
  return {};
}

namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string named_problem(const MachineFacts& facts, std::size_t device) {
  const std::string problem = device_problem(facts.devices[device]);
  return problem.empty() ? "" : fmt::format("cuda:{}: {}", device, problem);
}

}  // namespace

std::string machine_problem(const MachineFacts& facts) {
  if (!facts.has_cuda)
    return "this build has no CUDA; build where the CUDA toolkit is installed, or use the cpu";
  const std::string wanted = version_text(facts.runtime_version);
  if (facts.driver_version == 0)
    return fmt::format(
        "no NVIDIA driver was found, and CUDA {} needs one; install it, or use the cpu", wanted);
  // A driver runs programs of its own major version and of older ones.
  if (facts.driver_version / 1000 < facts.runtime_version / 1000) {
    return fmt::format(
        "the NVIDIA driver is of CUDA {}, and this program needs one of CUDA {}.0 or newer; update "
        "the driver, or use the cpu",
        version_text(facts.driver_version), facts.runtime_version / 1000);
  }
  if (facts.devices.empty()) {
    const std::string said =
        facts.count_error.empty() ? "" : fmt::format(" ({})", facts.count_error);
    return fmt::format(
        "the NVIDIA driver offers no GPU{}; look at nvidia-smi and at "
        "CUDA_VISIBLE_DEVICES, or use the cpu",
        said);
  }
  const bool any =
      std::any_of(facts.devices.begin(), facts.devices.end(),
                  [](const DeviceFacts& each) { return device_problem(each).empty(); });
  return any ? "" : named_problem(facts, 0);
}

std::string gpu_problem(const MachineFacts& facts, int device) {
  if (std::string problem = machine_problem(facts); !problem.empty()) return problem;
  const auto index = static_cast<std::size_t>(device);
  if (device < 0 || index >= facts.devices.size())
    return fmt::format("cuda:{} is none of this process's {} GPUs; name one that exists", device,
                       facts.devices.size());
  return named_problem(facts, index);
}

}  // namespace tessera::cuda
