#pragma once

/// Elementwise operations of one, two and three operands.

#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/kernels/math/functors_ternary.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// y = op(x), element by element.
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

/// y = op(a, b), element by element; a broadcast operand has strides of 0.
struct BinaryKernel {
  static constexpr const char* kName = "binary";
  /// One shape, any strides, any dtypes: operands are converted to `compute`, the result to y's
  /// dtype.
  struct Args {
    Operand a;
    Operand b;
    View y;
    BinaryOp op;
    DType compute;  ///< kF32, kF64, or kI64 for functors that accept integers
  };
  template <class F>
  static void visit(const Args& args, F&& f) {
    for (const Operand* operand : {&args.a, &args.b}) {
      if (!operand->is_number()) f(operand->view);
    }
    f(args.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& args, Workspace);
  static void cuda(CudaStream stream, const Args& args, Workspace);
};

/// y = op(a, b, c), element by element; a broadcast operand has strides of 0.
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
    double factor = 1;  ///< for addcmul, addcdiv and nan_to_num
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

/// y = alpha * x + beta * y: copy, cast, scale, accumulate with a cast. Without an x, y = number.
struct AxpbyKernel {
  static constexpr const char* kName = "axpby";
  /// One shape, any strides, any dtypes. Computed in the wider floating dtype of x and y, or in i64
  /// if both are integers (the factors are integers then). A floating result is converted to an
  /// integer by truncation, clamped to its range; NaN becomes 0.
  struct Args {
    ConstView x;  ///< may be undefined: then y is filled with `number`
    View y;       ///< not read if beta is 0
    double alpha = 1;
    double beta = 0;
    double number = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    if (a.x.defined()) f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// The dtype in which a launch is computed: i64 if x and y are integers; f64 if either is f64 or an
/// integer of 32 bits or more, which f32 cannot represent; else f32. Without an x: f64 unless y is
/// f32, so that the number is converted once, at the end, as in a cast.
inline DType axpby_compute(const AxpbyKernel::Args& a) {
  if (!a.x.defined()) return a.y.dtype == DType::kF32 ? DType::kF32 : DType::kF64;
  if (!is_floating(a.x.dtype) && !is_floating(a.y.dtype)) return DType::kI64;
  const auto needs_f64 = [](DType dtype) {
    return dtype == DType::kF64 || dtype == DType::kI64 || dtype == DType::kI32;
  };
  return needs_f64(a.x.dtype) || needs_f64(a.y.dtype) ? DType::kF64 : DType::kF32;
}

}  // namespace tessera
