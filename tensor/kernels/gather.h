#pragma once

/// y = the elements of x that indices select along one dim.

#include "tessera/tensor/kernels/indexed.h"

namespace tessera {

struct GatherKernel {
  static constexpr const char* kName = "gather";
  /// x and y of one dtype, index i64 or i32; any strides.
  struct Args {
    ConstView x;
    ConstView index;
    View y;
    IndexedWalk walk;
    BadIndex bad_index = nullptr;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.x);
    f(a.index);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
