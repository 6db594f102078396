#pragma once

/// Steps of optimizers: Adam, Lion and SGD, each for a list of parameters in one launch.
///
/// `gradient_scale`, 0-d f64, may be undefined: all gradients count as multiplied by it, in the
/// compute type.

#include <vector>

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// One step of Adam or AdamW for a list of parameters.
struct AdamKernel {
  static constexpr const char* kName = "adam";
  /// Contiguous floating views of one length. The formula is at AdamSegment in ops/optim.h.
  struct Segment {
    View parameter;
    ConstView gradient;
    View exp_avg;
    View exp_avg_sq;
    View max_exp_avg_sq = {};  ///< undefined without amsgrad
    View copy = {};         ///< any floating dtype: receives the new parameter, converted; may be
                            ///< undefined
    double step_size = 0;   ///< lr / (1 - beta1^step)
    double root_scale = 1;  ///< 1 / sqrt(1 - beta2^step)
    double beta1 = 0;
    double beta2 = 0;
    double eps = 0;
    double shrink = 1;         ///< factor of the parameter before the step: 1 - lr * weight_decay
    double coupled_decay = 0;  ///< factor of the parameter, added to the gradient
    double gradient_sign = 1;  ///< -1 to maximize
  };
  struct Args {
    std::vector<Segment> segments;
    ConstView gradient_scale = {};
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    if (a.gradient_scale.defined()) f(a.gradient_scale);
    for (const Segment& segment : a.segments) {
      f(segment.parameter);
      f(segment.gradient);
      f(segment.exp_avg);
      f(segment.exp_avg_sq);
      if (segment.max_exp_avg_sq.defined()) f(segment.max_exp_avg_sq);
      if (segment.copy.defined()) f(segment.copy);
    }
  }
  static std::size_t workspace(const Args&) { return 0; }
  static void cpu(const Args& a, Workspace);
  static void cuda(CudaStream stream, const Args& a, Workspace);
};

/// One step of Lion for a list of parameters.
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
    ConstView gradient_scale = {};
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    if (a.gradient_scale.defined()) f(a.gradient_scale);
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

/// One step of stochastic gradient descent for a list of parameters.
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
    ConstView gradient_scale = {};
  };
  template <class F>
  static void visit(const Args& a, F&& f) {
    if (a.gradient_scale.defined()) f(a.gradient_scale);
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
