#pragma once

/// y = a number where a mask is set, x elsewhere.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct MaskedFillKernel {
  static constexpr const char* kName = "masked_fill";
  /// One shape, any strides; x and y of one dtype, mask bool or u8. y may be x.
  struct Args {
    ConstView x;
    ConstView mask;
    View y;
    double value = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.mask);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
