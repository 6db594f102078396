// What the emulated NCCL says: results as texts, the last error.

#include <mutex>

#include "tessera/tests/support/emulated_gpu/nccl/nccl_clique.h"
#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::nccl {
namespace {

constexpr const char* kNames[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                  "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                  "ncclRemoteError",   "ncclInProgress"};
constexpr const char* kTexts[] = {
    "no error",
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "internal error - please report this issue to the NCCL developers",
    "invalid argument (run with NCCL_DEBUG=WARN for details)",
    "invalid usage (run with NCCL_DEBUG=WARN for details)",
    "remote process exited or there was a network error",
    "NCCL operation in progress"};

// Two texts, used alternately: a caller may read one while the next is written.
struct LastError {
  std::mutex mutex;
  std::string texts[2];
  int current = 0;
};
LastError& last_error() {
  static LastError last;
  return last;
}

}  // namespace

ncclResult_t refuse(const char* function, ncclResult_t result, const std::string& why) {
  {
    const std::lock_guard lock(last_error().mutex);
    last_error().current ^= 1;
    last_error().texts[last_error().current] = why;
  }
  return emulated::refuse(function, result, kNames[result], why);
}

}  // namespace tessera::emulated::nccl

extern "C" {

using namespace tessera::emulated::nccl;  // NOLINT: what follows is the API itself

const char* ncclGetErrorString(ncclResult_t result) {
  return result >= 0 && result < ncclNumResults ? kTexts[result] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) {
  const std::lock_guard lock(last_error().mutex);
  return last_error().texts[last_error().current].c_str();
}
}  // extern "C"
