#pragma once

/// y = op(x), element by element.

#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct UnaryKernel {
  static constexpr const char* kName = "unary";
  /// One shape, any strides, any dtypes: x is converted to `compute`, the result to y's dtype.
  struct Args {
    ConstView x;
    View y;
    UnaryOp op;
    DType compute;  ///< kF32, kF64, or kI64 for functors that accept integers
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
