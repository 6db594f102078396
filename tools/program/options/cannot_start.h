#pragma once

/// Exit codes of the program, and the exception for the last of them.

#include "tessera/tensor/error.h"

namespace tessera::tools {

inline constexpr const char* kVersion = "0.1.0";

inline constexpr int kDone = 0;
inline constexpr int kRunFailed = 1;
inline constexpr int kNotStarted = 2;

/// The command line, the configuration or the machine does not allow the program to start:
/// kNotStarted.
class CannotStart : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera::tools
