#include "tessera/distributed/nccl/nccl_meaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tessera::distributed {
namespace {

constexpr const char* kLog = "NCCL_DEBUG=WARN in the environment makes NCCL say more";
constexpr const char* kOurs = "that is a fault of Tessera: report it with this text";

struct Row {
  int code;
  NcclMeaning meaning;
};

// In ascending order.
constexpr Row kRows[] = {
    {0, {"ncclSuccess", NcclOutcome::kDone, ""}},
    {1,
     {"ncclUnhandledCudaError", NcclOutcome::kDeviceError,
      "a call of CUDA failed inside NCCL: look at the memory that is left on the GPU and at the "
      "driver; NCCL_DEBUG=WARN in the environment makes NCCL say more"}},
    {2,
     {"ncclSystemError", NcclOutcome::kCollective,
      "a call of the operating system failed: look at the network, at /dev/shm and at ulimit -l; "
      "NCCL_DEBUG=WARN in the environment makes NCCL say more"}},
    {3, {"ncclInternalError", NcclOutcome::kDeviceError, kLog}},
    {4, {"ncclInvalidArgument", NcclOutcome::kDeviceError, kOurs}},
    {5,
     {"ncclInvalidUsage", NcclOutcome::kDeviceError,
      "two ranks may be on one GPU, or the ranks' versions of NCCL differ: give each rank a GPU of "
      "its own, or start threads (--launch threads)"}},
    {6,
     {"ncclRemoteError", NcclOutcome::kPeer,
      "another rank has failed or is gone: its own message says why"}},
    {7, {"ncclInProgress", NcclOutcome::kPending, ""}},
};

}  // namespace

NcclMeaning nccl_meaning(int code) {
  const Row* found = std::find_if(std::begin(kRows), std::end(kRows),
                                  [code](const Row& row) { return row.code == code; });
  if (found != std::end(kRows)) return found->meaning;
  return {"an unknown status", NcclOutcome::kDeviceError, kLog};
}

std::string nccl_message(int code, std::string_view what, std::string_view text,
                         std::string_view detail) {
  const NcclMeaning meaning = nccl_meaning(code);
  const std::string more = detail.empty() ? std::string() : fmt::format(" ({})", detail);
  return fmt::format("NCCL reports {} (code {}) in {}: {}{}; {}", meaning.name, code, what, text,
                     more, meaning.advice);
}

}  // namespace tessera::distributed
