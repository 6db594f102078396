#pragma once

/// Operations on lists of tensors in one launch, for lists of small tensors: those of a parameter
/// group, the gradients of a model. The results have the bits of one operation after another.
///
/// Tensors that are not contiguous or not floating take a launch each. All tensors are on one
/// device; no tensor that is written shares memory with another tensor of the list. A list without
/// tensors does nothing.

#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// out = alpha * x + beta * out, as axpby_ in elementwise.h.
struct AxpbySegment {
  Tensor out = {};
  Tensor x = {};
  double alpha = 1;
  double beta = 0;  ///< 0: out is not read
};
void axpby_(const std::vector<AxpbySegment>& segments);

/// Multiplies each tensor by `factor`, which has one element, as mul_ in elementwise.h.
void mul_(const std::vector<Tensor>& tensors, const Tensor& factor);

}  // namespace tessera
