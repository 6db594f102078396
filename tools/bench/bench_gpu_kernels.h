#pragma once

/// The kernels, copies and fills that a GPU ran, with their times, by CUPTI. The library is loaded
/// when recording starts, so programs need it only then.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// The launches of one kernel with one shape.
struct KernelTime {
  std::string name;
  std::int64_t blocks = 0;   ///< of a launch; 0 for copies and fills
  std::int64_t threads = 0;  ///< of a block
  std::int64_t launches = 0;
  double us = 0;  ///< of all launches
};
struct KernelTimes {
  std::vector<KernelTime> kernels;  ///< most time first
  std::int64_t launches = 0;
  double busy_us = 0;  ///< in which at least one of them ran
  double span_us = 0;  ///< from the begin of the first to the end of the last
};

/// From here on the GPU's work is recorded, until recorded_kernels(). Returns why it cannot be
/// recorded, or nothing.
std::string record_kernels();
/// Ends the recording. The work must have ended, so synchronize first.
KernelTimes recorded_kernels();

}  // namespace tessera
