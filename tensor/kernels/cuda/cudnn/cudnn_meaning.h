#pragma once

/// The meaning of cuDNN statuses for a program: a table that needs neither cuDNN nor a GPU. Codes
/// are those of cudnnStatus_t since cuDNN 9, whose thousands are a category.

#include <string>
#include <string_view>

namespace tessera::cuda {

enum class CudnnKind {
  kSuccess,
  kRefusal,      ///< no implementation: try another one, or our own
  kOutOfMemory,  ///< OutOfMemory
  kFailure,      ///< DeviceError
};

struct CudnnMeaning {
  CudnnKind kind = CudnnKind::kFailure;
  const char* advice = "";  ///< what to do
};

/// Defined for every code; codes that are not in the table get the meaning of their category.
CudnnMeaning cudnn_meaning(int status);

/// `cuDNN reports NAME (code CODE) in WHAT: DETAIL; ADVICE`; `name` and `detail` are cuDNN's.
std::string cudnn_message(int status, std::string_view name, std::string_view detail,
                          std::string_view what);

}  // namespace tessera::cuda
