#pragma once

/// Softmax of each row.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct SoftmaxKernel {
  static constexpr const char* kName = "softmax";
  /// x and y [rows, n], contiguous, of one floating dtype.
  struct Args {
    ConstView x;
    View y;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
};

}  // namespace tessera
