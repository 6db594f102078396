#pragma once

/// The meaning of cuBLAS statuses for a program: a table that needs neither the toolkit nor a GPU.
/// Codes are those of cublasStatus_t, whose numbers are stable.

#include <string>
#include <string_view>

namespace tessera::cuda {

struct CublasMeaning {
  bool out_of_memory = false;  ///< OutOfMemory; all other errors are a DeviceError
  const char* advice = "";     ///< what to do
};

/// Defined for every code; codes that are not in the table get general advice.
CublasMeaning cublas_meaning(int code);

/// `cuBLAS reports NAME (code CODE) in WHAT: TEXT; ADVICE`; `name` and `text` are the library's.
std::string cublas_message(int code, std::string_view name, std::string_view text,
                           std::string_view what);

}  // namespace tessera::cuda
