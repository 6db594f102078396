// Helpers of the language-model cases in tests/reference/training/.
#pragma once

#include <memory>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera::testing {

// The mean over all positions of logits [..., classes].
inline StepResult mean_cross_entropy(const Variable& logits, const Tensor& classes) {
  const Variable rows = flatten(logits, 0, -2);
  return {logits, cross_entropy(rows, classes.view({classes.numel()}))};
}

// The same model under AdamW.
inline MakeModel with_adamw(const MakeModel& make) {
  return [make] {
    TrainedModel out = make();
    const auto adamw = std::make_shared<nn::optim::AdamW>(
        out.module->parameters(),
        nn::optim::AdamWOptions{
            .lr = 0.0078125, .betas = {0.875, 0.9375}, .eps = 1.0 / 1024, .weight_decay = 0.125});
    out.update = [adamw] { adamw->step(); };
    return out;
  };
}

}  // namespace tessera::testing
