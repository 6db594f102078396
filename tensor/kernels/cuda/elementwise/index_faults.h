#pragma once

/// An index out of range, met by a kernel on a GPU: thrown by BadIndex at the next host wait.

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/kernels/indexed.h"

namespace tessera::cuda {

inline void throw_index_fault(FaultCallback callback, const std::int64_t* numbers) {
  const auto bad_index = reinterpret_cast<BadIndex>(callback);
  bad_index(numbers[0], numbers[1], numbers[2], static_cast<int>(numbers[3]));
}

/// For report_fault(reporter, index, position, extent, dim), as BadIndex has them.
inline FaultReporter index_faults(CudaStream stream, BadIndex bad_index) {
  return {.slot = fault_slot(stream),
          .handler = throw_index_fault,
          .callback = reinterpret_cast<FaultCallback>(bad_index)};
}

}  // namespace tessera::cuda
