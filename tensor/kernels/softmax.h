#pragma once

/// Softmax along the last dim, log-softmax, and the derivatives of both.

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct SoftmaxKernel {
  static constexpr const char* kName = "softmax";
  /// x and y have one shape with at least one dim and one floating dtype, any strides. With `log` y
  /// is x - max - log(sum(exp(x - max))).
  struct Args {
    ConstView x;
    View y;
    bool log = false;

    std::size_t buffer_bytes() const {
      return static_cast<std::size_t>(row_buffer_length(y)) * dtype_size(compute_dtype(y.dtype));
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.y);
  }
  /// A row, or a tile of rows, for each thread, if y cannot hold it.
  static std::size_t workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct SoftmaxBackwardKernel {
  static constexpr const char* kName = "softmax_backward";
  /// dx = y * (dy - sum(dy * y)); with `log` dx = dy - exp(y) * sum(dy). Otherwise as above.
  struct Args {
    ConstView dy;
    ConstView y;
    View dx;
    bool log = false;

    std::size_t buffer_bytes() const {
      return static_cast<std::size_t>(3 * row_buffer_length(dx)) *
             dtype_size(compute_dtype(dx.dtype));
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.dy);
    f(a.y);
    f(a.dx);
  }
  static std::size_t workspace(const Args& a);
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

inline std::size_t SoftmaxKernel::workspace(const Args& a) {
  const std::int64_t n = a.y.shape.back();
  if (rows_in_place(a.y) || n == 0) return 0;
  return row_scratch(a.y.numel() / n, n, a.buffer_bytes());
}

inline std::size_t SoftmaxBackwardKernel::workspace(const Args& a) {
  const std::int64_t n = a.dx.shape.back();
  if ((rows_in_place(a.dx) && rows_in_place(a.dy) && rows_in_place(a.y)) || n == 0) return 0;
  return row_scratch(a.dx.numel() / n, n, a.buffer_bytes());
}

}  // namespace tessera
