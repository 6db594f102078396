#pragma once

/// How the emulated cuBLAS, cuDNN and NCCL refuse a call: with the status that the library's
/// documentation gives, and the reason on stderr, for the real ones say no more than the status.

#include <cstdio>
#include <string>

namespace tessera::emulated {

/// Prints "emulated <function>: <status name>: <why>" and returns `status`.
template <class Status>
Status refuse(const char* function, Status status, const char* status_name,
              const std::string& why) {
  std::fprintf(stderr, "emulated %s: %s: %s\n", function, status_name, why.c_str());
  return status;
}

}  // namespace tessera::emulated
