#pragma once

/// Where the largest or the smallest element along the last dim stands.

#include "tessera/tensor/kernels/plans/line_chunks.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct ArgExtremeKernel {
  static constexpr const char* kName = "arg_extreme";
  /// x [..., n] of any dtype and strides, n > 0; y [...] i64, any strides. The first of equals
  /// wins, and the first NaN over numbers.
  struct Args {
    ConstView x;
    View y;
    bool largest = true;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  /// The best of each chunk of a line, and where it stands.
  static std::size_t cuda_workspace(const Args& a) {
    const LineChunks cut = line_chunks(a.x.shape, a.x.strides);
    return cut.chunks == 1 ? 0 : static_cast<std::size_t>(cut.lines * cut.chunks) * 16;
  }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
