#pragma once

/// One step of stochastic gradient descent for a list of parameters.

#include <vector>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

struct SgdKernel {
  static constexpr const char* kName = "sgd";
  /// Contiguous floating views of one length. The formula is at SgdSegment in ops/optim.h.
  struct Segment {
    View parameter;
    ConstView gradient;
    View momentum;  ///< undefined without momentum
    double lr = 0;
    double momentum_factor = 0;
    double dampening = 0;
    double weight_decay = 0;
    bool nesterov = false;
    bool maximize = false;
    bool first_step = false;
  };
  struct Args {
    std::vector<Segment> segments;
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    for (const Segment& segment : a.segments) {
      f(segment.parameter);
      f(segment.gradient);
      if (segment.momentum.defined()) f(segment.momentum);
    }
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

}  // namespace tessera
