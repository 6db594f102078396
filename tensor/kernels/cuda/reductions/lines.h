#pragma once

/// Chunks of lines in kernels. For .cu files; see row_plan.h.

#include "tessera/tensor/kernels/cuda/reductions/row_plan.h"
#include "tessera/tensor/kernels/cuda/reductions/rows.h"

namespace tessera::cuda {

inline Grid line_grid(const LinePlan& plan) {
  return {.blocks = static_cast<unsigned>(plan.blocks()),
          .threads = static_cast<unsigned>(plan.threads())};
}

/// The running thread's chunk, elements [begin, end) of a line. Threads after the last chunk have
/// an empty one.
struct LinePlace {
  std::int64_t line, chunk, begin, end;
  int lane;
  bool exists;

  __device__ explicit LinePlace(const LinePlan& plan) {
    const unsigned thread = threadIdx.x, in_block = blockDim.x >> plan.lane_bits;
    const std::int64_t which = std::int64_t{blockIdx.x} * in_block + (thread >> plan.lane_bits);
    lane = static_cast<int>(thread & static_cast<unsigned>(plan.lanes - 1));
    // Adjacent threads have adjacent lines.
    chunk = plan.cut.chunks == 1 ? 0 : which / plan.cut.lines;
    line = which - chunk * plan.cut.lines;
    exists = chunk < plan.cut.chunks && line < plan.cut.lines;
    begin = exists ? chunk * plan.cut.chunk : 0;
    const std::int64_t last = begin + plan.cut.chunk;
    end = !exists ? 0 : last < plan.cut.length ? last : plan.cut.length;
  }
  __device__ bool leads() const { return lane == 0 && exists; }
};

}  // namespace tessera::cuda
