#pragma once

/// Softmax along the last dim, its logarithm, and the derivatives of both.

#include "tessera/tensor/kernels/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct SoftmaxKernel {
  static constexpr const char* kName = "softmax";
  /// x and y of one shape with at least one dim and one floating dtype, any strides. With `log` y
  /// is x - max - log(sum(exp(x - max))).
  struct Args {
    ConstView x;
    View y;
    bool log = false;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  /// A row for each thread, where y cannot hold it.
  static std::size_t workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
};

struct SoftmaxBackwardKernel {
  static constexpr const char* kName = "softmax_backward";
  /// dx = y * (dy - sum(dy * y)); with `log` dx = dy - exp(y) * sum(dy). As above.
  struct Args {
    ConstView dy;
    ConstView y;
    View dx;
    bool log = false;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.y);
    f(a.dx);
  }
  static std::size_t workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
};

inline std::size_t SoftmaxKernel::workspace(const Args& a) {
  const std::int64_t n = a.y.shape.back();
  if (rows_in_place(a.y) || n == 0) return 0;
  const std::size_t row = static_cast<std::size_t>(n) * dtype_size(compute_dtype(a.y.dtype));
  return row_scratch(a.y.numel() / n, n, row);
}

inline std::size_t SoftmaxBackwardKernel::workspace(const Args& a) {
  const std::int64_t n = a.dx.shape.back();
  if ((rows_in_place(a.dx) && rows_in_place(a.dy) && rows_in_place(a.y)) || n == 0) return 0;
  const std::size_t row = static_cast<std::size_t>(n) * dtype_size(compute_dtype(a.dx.dtype));
  return row_scratch(a.dx.numel() / n, n, 3 * row);
}

}  // namespace tessera
