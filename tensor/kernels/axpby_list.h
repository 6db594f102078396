#pragma once

/// Copies, casts, scalings and additions of many tensors in one launch: the tensors of a parameter
/// group are often so small that a launch for each would take longer than their elements.

#include <vector>

#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// y = alpha * x + beta * y for each segment, with AxpbyKernel's bits.
struct AxpbyListKernel {
  static constexpr const char* kName = "axpby_list";
  /// Contiguous floating views of one length; x may be y. No segment writes what another one reads
  /// or writes. Dtypes may differ, also between segments.
  struct Segment {
    ConstView x;
    View y;  ///< not read if beta is 0
    double alpha = 1;
    double beta = 0;
  };
  struct Args {
    std::vector<Segment> segments;
    /// One floating element, which takes the place of every alpha; may be undefined.
    ConstView factor = {};
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (const Segment& segment : a.segments) {
      f(segment.x);
      f(segment.y);
    }
    if (a.factor.defined()) f(a.factor);
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);

  /// The dtype in which a segment is computed.
  static DType compute(const Segment& segment) {
    return axpby_compute({.x = segment.x, .y = segment.y});
  }
};

}  // namespace tessera
