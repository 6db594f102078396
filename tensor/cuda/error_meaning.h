#pragma once

/// What an error of the CUDA runtime means for a program: a table, without the toolkit and without
/// a GPU. Codes are those of cudaError_t, which keep their numbers.

#include <string>
#include <string_view>
#include <vector>

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

/// What a machine must have for Tessera to compute on its GPUs. Versions as the toolkit counts:
/// 13010 is 13.1.
struct MachineFacts {
  bool has_cuda = false;      ///< the build has
  int driver_version = 0;     ///< the newest CUDA that the driver knows; 0: there is no driver
  int runtime_version = 0;    ///< the CUDA that the program was built for
  std::string count_error{};  ///< what the toolkit said when it was asked for GPUs; empty: nothing
  std::vector<DeviceFacts> devices{};
};
/// Why there is no computing on GPUs, in one line; empty where at least one can be used.
std::string machine_problem(const MachineFacts& facts);
/// Why there is no computing on this GPU, in one line; empty where there is.
std::string gpu_problem(const MachineFacts& facts, int device);

}  // namespace tessera::cuda
