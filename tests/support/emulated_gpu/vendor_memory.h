#pragma once

/// Whether the emulated GPU may touch what a library is given.

#include <cstddef>
#include <cstdio>
#include <string>

namespace tessera::emulated {

/// Whether these bytes lie in one allocation of the CUDA runtime that is alive as the host sees it:
/// memory of any GPU, or pinned memory of the host.
bool is_device_memory(const void* at, std::size_t bytes);

// How the emulated cuBLAS, cuDNN and NCCL refuse a call: with the status that the library's
// documentation gives, and the reason on stderr, for the real ones say no more than the status.

/// Prints "emulated <function>: <status name>: <why>" and returns `status`.
template <class Status>
Status refuse(const char* function, Status status, const char* status_name,
              const std::string& why) {
  std::fprintf(stderr, "emulated %s: %s: %s\n", function, status_name, why.c_str());
  return status;
}

}  // namespace tessera::emulated
