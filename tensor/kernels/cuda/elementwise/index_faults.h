#pragma once

/// An index out of range, found by a GPU kernel: BadIndex is called at the next host wait.

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/kernels/indexed.h"

namespace tessera::cuda {

inline void throw_index_fault(FaultCallback callback, const std::int64_t* numbers) {
  const auto bad_index = reinterpret_cast<BadIndex>(callback);
  bad_index(numbers[0], numbers[1], numbers[2], static_cast<int>(numbers[3]));
}

/// For report_fault(reporter, index, position, extent, dim), with the arguments of BadIndex.
inline FaultReporter index_faults(CudaStream stream, BadIndex bad_index) {
  return {.slot = fault_slot(stream),
          .handler = throw_index_fault,
          .callback = reinterpret_cast<FaultCallback>(bad_index)};
}

}  // namespace tessera::cuda
