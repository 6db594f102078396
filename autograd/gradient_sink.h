#pragma once

/// Where a leaf's gradient goes. Every leaf has a sink; a plain one keeps the gradient in the leaf
/// (Variable::grad). A sharding layer installs its own, so that gradients land where they are
/// reduced from, without a copy. Called by the thread that runs the backward pass.

#include <optional>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// A place that a backward kernel may write a gradient into directly.
struct GradientSlot {
  Tensor tensor;    ///< the leaf's shape; contiguous
  double beta = 0;  ///< 0: overwrite (first write since the last reduce); 1: add to the values
};

class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// The slot, if a kernel that stores `storable` may write into it now; the caller then must write
  /// it, on the current stream, before anything else asks. nullopt: hand the gradient to
  /// accumulate() instead.
  virtual std::optional<GradientSlot> take_slot(DType storable) = 0;
  /// Adds a finished gradient (any floating dtype, the leaf's shape) to the collected gradient.
  virtual void accumulate(const Tensor& gradient) = 0;
  /// Once per backward pass that reached the leaf: every use of the leaf in that pass has delivered
  /// its gradient. A leaf used twice gets this after its second use, which is when the gradient may
  /// be reduced.
  virtual void complete() {}
};

}  // namespace tessera
