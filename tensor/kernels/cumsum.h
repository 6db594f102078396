#pragma once

/// Running sums along the last dim.

#include "tessera/tensor/kernels/plans/line_chunks.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct CumsumKernel {
  static constexpr const char* kName = "cumsum";
  /// x and y of one shape with at least 1 dim, any strides. Floating dtypes are summed in f64,
  /// others in i64, one element after another, from the last one on if `reverse` is set.
  struct Args {
    ConstView x;
    View y;
    bool reverse = false;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  /// The sum of each chunk of a line.
  static std::size_t cuda_workspace(const Args& a) {
    const LineChunks cut = line_chunks(a.x.shape, a.x.strides);
    return cut.chunks == 1 ? 0 : static_cast<std::size_t>(cut.lines * cut.chunks) * 8;
  }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
