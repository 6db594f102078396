#pragma once

/// Index of the largest element of each row.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct ArgmaxKernel {
  static constexpr const char* kName = "argmax";
  /// x [rows, n] contiguous, n > 0, any dtype; y [rows] i64. The first of equals wins, and the
  /// first NaN over numbers.
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
