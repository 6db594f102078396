#pragma once

/// y = op(a, b), element by element; a broadcast operand has strides of 0.

#include "tessera/tensor/kernels/functors.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct BinaryKernel {
  static constexpr const char* kName = "binary";
  /// One shape, any strides. a and b have one dtype, which is y's too, but for kEqual, where y is
  /// u8. Division and the derivatives take floating dtypes only. For the derivatives a is dy and b
  /// is x.
  struct Args {
    ConstView a;
    ConstView b;
    View y;
    BinaryOp op;
  };
  template <class F>
  static void visit(const Args& args, F&& f) {
    f(args.a);
    f(args.b);
    f(args.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& args, Workspace);
};

}  // namespace tessera
