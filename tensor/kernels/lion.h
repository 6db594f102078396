#pragma once

/// One step of Lion for a list of parameters.

#include <vector>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct LionKernel {
  static constexpr const char* kName = "lion";
  /// Contiguous floating views of one length. The formula is at LionSegment in ops/optim.h.
  struct Segment {
    View parameter;
    ConstView gradient;
    View exp_avg;
    double lr = 0;
    double beta1 = 0;
    double beta2 = 0;
    double shrink = 1;         ///< factor of the parameter before the step: 1 - lr * weight_decay
    double gradient_sign = 1;  ///< -1 to maximize
  };
  struct Args {
    std::vector<Segment> segments;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (const Segment& segment : a.segments) {
      f(segment.parameter);
      f(segment.gradient);
      f(segment.exp_avg);
    }
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
