#pragma once

/// Rotary position embedding: the table of angles, and the rotation of pairs of features by them.

#include "tessera/tensor/kernels/plans/row_scratch.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct RotaryTableKernel {
  static constexpr const char* kName = "rotary_table";
  /// cos and sin [positions, pairs], f32 or f64, contiguous, of the angle (offset + position) *
  /// base^(-pair / pairs).
  struct Args {
    View cos;
    View sin;
    double base = 10000;
    std::int64_t offset = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.cos);
    f(a.sin);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

struct RotaryKernel {
  static constexpr const char* kName = "rotary";
  /// x and y [..., positions, heads, features], floating, any strides; cos and sin [positions,
  /// pairs] in the compute type, with rows of unit stride. The first 2 * pairs features of a row
  /// are rotated, the others copied. A pair is features i and pairs + i, or, interleaved, 2i and 2i
  /// + 1. `inverse` rotates by the negative angle.
  struct Args {
    ConstView x;
    ConstView cos;
    ConstView sin;
    View y;
    bool interleaved = false;
    bool inverse = false;

    std::size_t row_bytes() const {
      return static_cast<std::size_t>(2 * x.shape.back()) * dtype_size(cos.dtype);
    }
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.cos);
    f(a.sin);
    f(a.y);
  }
  static std::size_t workspace(const Args& a) {
    const std::int64_t n = a.x.shape.back();
    if ((rows_in_place(a.x) && rows_in_place(a.y)) || n == 0) return 0;
    return row_scratch(a.x.numel() / n, n, a.row_bytes());
  }
  static void cpu(const Args& a, Workspace scratch);
  static void cuda(CudaStream stream, const Args& a, Workspace scratch);
};

}  // namespace tessera
