#pragma once

/// The meaning of CUDA runtime errors for a program: a table that needs neither the toolkit nor a
/// GPU. Codes are those of cudaError_t, whose numbers are stable.

#include <string>
#include <string_view>
#include <vector>

namespace tessera::cuda {

struct ErrorMeaning {
  bool out_of_memory = false;  ///< OutOfMemory; all other errors are a DeviceError
  bool is_final = false;       ///< the GPU accepts no more work from this process
  const char* advice = "";     ///< what to do
};

/// Defined for every code; codes that are not in the table get general advice.
ErrorMeaning error_meaning(int code);

/// `CUDA reports NAME (code CODE) in WHAT: TEXT; ADVICE`; `name` and `text` are the toolkit's.
std::string error_message(int code, std::string_view name, std::string_view text,
                          std::string_view what);

/// The properties of a GPU that decide whether Tessera can use it.
struct DeviceFacts {
  std::string name;
  int major = 0;  ///< compute capability
  int minor = 0;
  bool has_memory_pools = false;
};
/// The reason why Tessera cannot use the GPU; empty if it can.
std::string device_problem(const DeviceFacts& facts);

/// The properties of a machine that decide whether Tessera can compute on its GPUs. Versions are in
/// the toolkit's form: 13010 is 13.1.
struct MachineFacts {
  bool has_cuda = false;      ///< the build includes CUDA
  int driver_version = 0;     ///< the newest CUDA version that the driver supports; 0: no driver
  int runtime_version = 0;    ///< the CUDA version that the program was built for
  std::string count_error{};  ///< the toolkit's error when GPUs were counted; empty: none
  std::vector<DeviceFacts> devices{};
};
/// The reason why no GPU can be used, in one line; empty if at least one can.
std::string machine_problem(const MachineFacts& facts);
/// The reason why this GPU cannot be used, in one line; empty if it can.
std::string gpu_problem(const MachineFacts& facts, int device);

}  // namespace tessera::cuda
