#pragma once

/// What a status of cuBLAS means for a program: a table, without the toolkit and without a GPU.
/// Codes are those of cublasStatus_t, which keep their numbers.

#include <string>
#include <string_view>

namespace tessera::cuda {

struct CublasMeaning {
  bool out_of_memory = false;  ///< OutOfMemory; everything else is a DeviceError
  const char* advice = "";     ///< what to do
};

/// Of every code, also those that are not in the table: they get general advice.
CublasMeaning cublas_meaning(int code);

/// `cuBLAS reports NAME (code CODE) in WHAT: TEXT; ADVICE`; `name` and `text` are the library's.
std::string cublas_message(int code, std::string_view name, std::string_view text,
                           std::string_view what);

}  // namespace tessera::cuda
