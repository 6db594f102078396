#pragma once

/// y[i] = i.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct ArangeKernel {
  static constexpr const char* kName = "arange";
  /// 1-D, contiguous, any dtype that holds the numbers.
  struct Args {
    View y;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
};

}  // namespace tessera
