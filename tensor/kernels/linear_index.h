#pragma once

/// One index instead of several: row-major positions from the indices of each dim.

#include <array>

#include "tessera/tensor/kernels/indexed.h"

namespace tessera {

struct LinearIndexKernel {
  static constexpr const char* kName = "linear_index";
  /// y = indices[0] * extents[1] * ... + indices[1] * extents[2] * ... + ...; the indices, i64 or
  /// i32, have y's shape and any strides; y is i64 and contiguous.
  struct Args {
    std::array<ConstView, kMaxDims> indices;  ///< one per entry of extents
    Shape extents;
    View y;
    BadIndex bad_index = nullptr;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (int d = 0; d < a.extents.ndim(); ++d) f(a.indices[static_cast<std::size_t>(d)]);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
