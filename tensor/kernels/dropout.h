#pragma once

/// Dropout. Counter-based random numbers, found by position, decide which elements are kept.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct DropoutKernel {
  static constexpr const char* kName = "dropout";
  /// y = u >= p ? scale * x : 0, where u is the f32 uniform number at first_position + i .
  /// position_strides, as RandomFillKernel draws it. x and y have one shape and floating dtype, any
  /// strides.
  struct Args {
    ConstView x = {};
    View y = {};
    std::uint64_t key = 0;
    std::int64_t first_position = 0;
    Shape position_strides = {};
    double p = 0;
    double scale = 1;
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
