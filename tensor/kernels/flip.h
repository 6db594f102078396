#pragma once

/// The elements in reverse order along some dims.

#include <array>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct FlipKernel {
  static constexpr const char* kName = "flip";
  /// x and y of one shape and dtype, any strides.
  struct Args {
    ConstView x;
    View y;
    std::array<bool, kMaxDims> reversed{};
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
