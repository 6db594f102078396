// The user's own header with the name of one of Tessera's. Includes of "nn/loss.h" must find this
// one.
#pragma once

#include "tessera/nn/layers/linear.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/ops/create.h"

namespace outside {

inline const char* whose() { return "the user's loss"; }

inline tessera::Variable loss(const tessera::Variable& y) {
  return tessera::nn::mse_loss(y, tessera::Variable(tessera::zeros(y.shape())),
                               tessera::LossReduction::kSum);
}

}  // namespace outside
