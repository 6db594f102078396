#pragma once

/// The position of the largest or smallest element along the last dim.

#include "tessera/tensor/kernels/plans/line_chunks.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct ArgExtremeKernel {
  static constexpr const char* kName = "arg_extreme";
  /// x [..., n] has any dtype and strides, n > 0; y [...] is i64, any strides. The first of equal
  /// elements wins; the first NaN wins over numbers.
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
  /// The best element of each chunk of a line, and its position.
  static std::size_t cuda_workspace(const Args& a) {
    const LineChunks cut = line_chunks(a.x.shape, a.x.strides);
    return cut.chunks == 1 ? 0 : static_cast<std::size_t>(cut.lines * cut.chunks) * 16;
  }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
