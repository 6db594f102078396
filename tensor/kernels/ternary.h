#pragma once

/// y = op(a, b, c), element by element; a broadcast operand has strides of 0.

#include "tessera/tensor/kernels/math/functors_ternary.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct TernaryKernel {
  static constexpr const char* kName = "ternary";
  /// One shape, any strides, any dtypes: operands are converted to `compute`, the result to y's
  /// dtype.
  struct Args {
    Operand a;
    Operand b;
    Operand c;
    View y;
    TernaryOp op;
    DType compute;      ///< kF32, kF64, or kI64 for functors that accept integers
    double factor = 1;  ///< for addcmul and addcdiv
  };
  template <class F>
  static void visit(const Args& args, F&& f) {
    for (const Operand* operand : {&args.a, &args.b, &args.c}) {
      if (!operand->is_number()) f(operand->view);
    }
    f(args.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& args, Workspace);
  static void cuda(CudaStream stream, const Args& args, Workspace);
};

}  // namespace tessera
