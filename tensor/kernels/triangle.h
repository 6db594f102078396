#pragma once

/// Matrices with zeros above or below a diagonal.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct TriangleKernel {
  static constexpr const char* kName = "triangle";
  /// x and y [..., rows, columns] have one dtype, any strides. Element (i, j) is kept if j - i <=
  /// `diagonal`; with `upper`, if j - i >= `diagonal`.
  struct Args {
    ConstView x;
    View y;
    std::int64_t diagonal = 0;
    bool upper = false;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
