#pragma once

/// What an error of the CUDA runtime means for a program: a table, without the toolkit and without
/// a GPU. Codes are those of cudaError_t, which keep their numbers.

#include <string>
#include <string_view>

namespace tessera::cuda {

struct ErrorMeaning {
  bool out_of_memory = false;  ///< OutOfMemory; everything else is a DeviceError
  bool is_final = false;       ///< the GPU takes no more work from this process
  const char* advice = "";     ///< what to do
};

/// Of every code, also those that are not in the table: they get general advice.
ErrorMeaning error_meaning(int code);

/// `CUDA reports NAME (code CODE) in WHAT: TEXT; ADVICE`; `name` and `text` are the toolkit's.
std::string error_message(int code, std::string_view name, std::string_view text,
                          std::string_view what);

/// What a GPU must be for Tessera.
struct DeviceFacts {
  std::string name;
  int major = 0;  ///< compute capability
  int minor = 0;
  bool has_memory_pools = false;
};
/// Why Tessera cannot use it; empty where it can.
std::string device_problem(const DeviceFacts& facts);

}  // namespace tessera::cuda
