#pragma once

/// What a status of cuDNN means for a program: a table, without cuDNN and without a GPU. Codes are
/// those of cudnnStatus_t since cuDNN 9, whose thousands name a category.

#include <string>
#include <string_view>

namespace tessera::cuda {

enum class CudnnKind {
  kSuccess,
  kRefusal,      ///< there is no implementation: another one is taken, or ours
  kOutOfMemory,  ///< OutOfMemory
  kFailure,      ///< DeviceError
};

struct CudnnMeaning {
  CudnnKind kind = CudnnKind::kFailure;
  const char* advice = "";  ///< what to do
};

/// Of every code, also those that are not in the table: they get what their category says.
CudnnMeaning cudnn_meaning(int status);

/// `cuDNN reports NAME (code CODE) in WHAT: DETAIL; ADVICE`; `name` and `detail` are cuDNN's.
std::string cudnn_message(int status, std::string_view name, std::string_view detail,
                          std::string_view what);

}  // namespace tessera::cuda
