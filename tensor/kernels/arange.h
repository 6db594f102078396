#pragma once

/// y[i] = first + step i; for i >= `mirror`, last - step (n - 1 - i).

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct ArangeKernel {
  static constexpr const char* kName = "arange";
  /// y is 1-D and contiguous, of any dtype that can hold the numbers; computed in f64. Computing
  /// the second half from the end makes both ends exact if the step is rounded.
  struct Args {
    View y;
    double first = 0;
    double step = 1;
    double last = 0;
    std::int64_t mirror = 0;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
