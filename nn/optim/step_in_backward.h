#pragma once

/// Optimizer in backward: each parameter is updated as soon as its gradient is complete, and the
/// gradient is dropped, so that a whole model's gradients never exist at once.
///
///     optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
///     const optim::StepInBackward in_backward(optimizer);
///     backward(loss);               // updates; no step(), no zero_grad()
///
/// The numbers are those of step() after backward. Groups, schedules and saved state work as ever,
/// since it is the optimizer's own step. What needs all gradients at once does not: norms,
/// clipping, sums over several backwards. Muon updates its sharded matrices with collectives, whose
/// order is then that in which gradients arrive: leave it to step().

#include <vector>

#include "tessera/autograd/hooks.h"
#include "tessera/nn/optim/optimizer.h"

namespace tessera::nn::optim {

class StepInBackward {
 public:
  /// For all parameters that the optimizer has now, which are materialised. `optimizer` must
  /// outlive this object. Throws StateError for a parameter without elements, and one that has a
  /// gradient already; in backward, for one that was sharded since. Sharded parameters are updated
  /// once their gradient is reduced.
  explicit StepInBackward(Optimizer& optimizer);
  StepInBackward(const StepInBackward&) = delete;
  StepInBackward& operator=(const StepInBackward&) = delete;
  /// From here on gradients stay, and step() is called by hand again.
  ~StepInBackward();

 private:
  std::vector<HookHandle> handles_;
};

}  // namespace tessera::nn::optim
