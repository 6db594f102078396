#pragma once

/// Optimizer steps: one launch over a list of segments, each the real (unpadded) rows of one
/// parameter's shard.

#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// One parameter of an SGD step; all contiguous, of one shape, floating dtype and device. Empty
/// ones are legal.
struct SgdSegment {
  Tensor parameter = {};
  Tensor gradient = {};
  Tensor momentum = {};  ///< undefined without momentum
  double lr = 0;
  double momentum_factor = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;  ///< the momentum buffer starts as the gradient itself
};

/// Per element, with PyTorch's definition:
///   g = gradient + weight_decay * p;  m = first_step ? g : momentum_factor * m + (1 - dampening) *
///   g; p -= lr * (nesterov ? g + momentum_factor * m : m)          (without momentum: p -= lr * g)
/// Throws InvalidArgument when a segment's tensors differ in shape, dtype or device, or are not
/// contiguous.
void sgd_step(const std::vector<SgdSegment>& segments);

}  // namespace tessera
