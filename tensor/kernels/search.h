#pragma once

/// Positions among sorted elements.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// For each value, how many elements of its sorted line come before it.
struct SearchSortedKernel {
  static constexpr const char* kName = "search_sorted";
  /// x [..., m] and y [..., m] have one shape with at least 1 dim, `sorted` [..., n] the same
  /// leading dims; any strides. x and `sorted` have one dtype, y is i64. An element comes before a
  /// value if it is smaller, with `right` also if it is equal. As in PyTorch, a NaN comes before
  /// every value, and every element before a NaN.
  struct Args {
    ConstView sorted;
    ConstView x;
    View y;
    bool right = false;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    f(a.sorted);
    f(a.x);
    f(a.y);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
